"""Talks to the hub: lists a repository, downloads its files and checks the SHA-256 of each."""

import hashlib
import logging
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from huggingface_hub import HfApi, constants, errors, hf_hub_download
from huggingface_hub.hf_api import ModelInfo
from huggingface_hub.utils.tqdm import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

from imp_service.cli.atomic_file import require_regular, write_atomically
from imp_service.cli.failure import CommandError
from imp_service.cli.hub.cache import DIGEST, remove_file
from imp_service.cli.hub.choose import HubFile, RepositoryModel, is_inside
from imp_service.cli.hub.outside_names import check_answers, require_name
from imp_service.cli.hub.reference import HubReference

T = TypeVar("T")

_ENDPOINT = "https://huggingface.co"
_BLOCK_BYTES = 4 * 1024**2
_SHA256 = re.compile(r"[0-9a-f]{64}")


class Verbosity(Enum):
    """What the user sees of a download."""

    ALL = "digests, remarks and tables, and bars on a terminal"
    BARS = "bars, where there is a terminal or a notebook"
    NOTHING = "errors alone"


class Repository(NamedTuple):
    files: list[HubFile]
    n_parameters: int | None
    commit: str


def read_repository(reference: HubReference, revision: str | None) -> Repository:
    """The files of the repository at this revision. Raises CommandError."""
    if revision is not None and not is_inside(revision):
        raise CommandError("USAGE", f"{revision}: expected a branch, a tag or a commit")
    with errors_of(str(reference)):
        try:
            info = HfApi().model_info(reference.repository, revision=revision, files_metadata=True)
            return _repository(info, revision or constants.DEFAULT_REVISION)
        except (AttributeError, KeyError, TypeError):  # of a library that expects another form
            raise ValueError("the hub's listing is not that of a repository") from None


def _repository(info: ModelInfo, revision: str) -> Repository:
    """Raises ValueError for values of a wrong type: the library passes on what the hub sent."""
    files = [
        HubFile(
            _typed(each.rfilename, str),
            _size(each.size),
            _digest(each.lfs.sha256) if each.lfs else None,
        )
        for each in info.siblings or []
    ]
    weights = _typed({} if info.gguf is None else info.gguf, dict)
    total = weights.get("total")
    commit = revision if info.sha is None else require_name(_typed(info.sha, str))
    return Repository(files, None if total is None else _size(total), commit)


def _typed(value: object, kind: type[T]) -> T:
    if type(value) is not kind:
        raise ValueError(f"the hub's listing has {value!r:.80}, expected {kind.__name__}")
    return value


def _size(value: object) -> int:
    size = _typed(0 if value is None else value, int)
    if not 0 <= size < 2**63:
        raise ValueError(f"the hub's listing has the size {size}, expected a number of bytes")
    return size


def _digest(value: object) -> str:
    digest = _typed(value, str)
    if _SHA256.fullmatch(digest) is None:
        raise ValueError(f"the hub's listing has {digest!r:.80}, expected a SHA-256")
    return digest


def download(
    reference: HubReference,
    choice: RepositoryModel,
    revision: str | None,
    folder: Path | None,
    verbosity: Verbosity = Verbosity.ALL,
) -> list[Path]:
    """The files of the choice, in the hub's cache or in `folder`. Raises CommandError and OSError."""
    check_answers()
    with _bars(is_shown=verbosity is Verbosity.BARS or (verbosity is Verbosity.ALL and sys.stderr.isatty())):
        return [_download(reference, file, revision, folder, verbosity) for file in choice.files]


@contextmanager
def _bars(*, is_shown: bool) -> Iterator[None]:
    """Without bars of the library within the `with` block, unless they are shown."""
    if is_shown or are_progress_bars_disabled():
        yield
        return
    disable_progress_bars()
    try:
        yield
    finally:
        enable_progress_bars()


def _shown_bar() -> dict[str, Any]:
    """The option for a bar that is shown whatever stderr is, such as in a notebook. Early versions do not have it."""
    has_option = "tqdm_class" in signature(hf_hub_download).parameters
    return {"tqdm_class": import_module("tqdm.auto").tqdm} if has_option else {}


def _download(
    reference: HubReference, file: HubFile, revision: str | None, folder: Path | None, verbosity: Verbosity
) -> Path:
    before = None if folder is None else _found(folder / file.name)
    with errors_of(f"{reference.repository}:{file.name}"):
        shown = _shown_bar() if verbosity is Verbosity.BARS else {}
        path = Path(hf_hub_download(reference.repository, file.name, revision=revision, local_dir=folder, **shown))
    if file.sha256 is None:
        return path
    digest = _sha256(path)
    if digest != file.sha256:
        # The hub can give any file the name of one that is here.
        if before is not None and before == _found(path):
            fate = "it was there before, delete it or choose another folder"
        elif folder is None:
            remove_file(path)
            fate = "it is removed"
        else:
            path.unlink()
            fate = "it is removed"
        raise CommandError("HUB_CORRUPT", f"{file.name}: SHA-256 {digest}, expected {file.sha256}; {fate}")
    _write_digest(path, digest)
    if verbosity is Verbosity.ALL:
        print(f"{digest}  {file.name}", file=sys.stderr, flush=True)
    return path


def _found(path: Path) -> tuple[int, int] | None:
    """Inode and time of a file; None if there is none. Raises CommandError for a link: the library would follow it."""
    try:
        require_regular(path)
    except FileExistsError as error:
        raise CommandError("CANNOT_CREATE", f"{path}: {error.strerror}") from None
    if not path.exists():
        return None
    status = path.stat()
    return status.st_ino, status.st_mtime_ns


def other_endpoint() -> str | None:
    """The address of the hub; None for Hugging Face."""
    return None if constants.ENDPOINT == _ENDPOINT else constants.ENDPOINT


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
    return digest.hexdigest()


def _write_digest(path: Path, digest: str) -> None:
    """Writes the digest to a file next to it, in the format of sha256sum."""
    write_atomically(path.with_name(f"{path.name}{DIGEST}"), f"{digest}  {path.name}\n")


@contextmanager
def errors_of(what: str) -> Iterator[None]:
    """Turns each failure of the library into one error line, and suppresses the library's own output."""
    logging.getLogger("huggingface_hub").setLevel(logging.CRITICAL)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    except errors.GatedRepoError:
        raise CommandError("HUB_PERMISSION", f"{what}: gated, accept its terms on its page and set HF_TOKEN") from None
    except errors.HfHubHTTPError as error:
        raise _of_status(what, error.response.status_code) from None
    except errors.OfflineModeIsEnabled as error:
        raise CommandError("HUB_UNREACHABLE", f"{what}: {_first_line(error)}") from None
    except errors.LocalEntryNotFoundError as error:
        raise _no_answer(what, error.__cause__ or error) from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise _no_answer(what, error) from None
    except (ValueError, RuntimeError) as error:
        raise CommandError("HUB_INVALID", f"{what}: {_first_line(error)}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore"):
            raise _no_answer(what, error) from None
        raise


def _no_answer(what: str, error: BaseException) -> CommandError:
    ways_out = "set HF_ENDPOINT to a mirror, or copy the files here and name their path"
    return CommandError(
        "HUB_UNREACHABLE", f"{what}: no answer from {constants.ENDPOINT}: {_first_line(error)}; {ways_out}"
    )


def _of_status(what: str, status: int) -> CommandError:
    if status in (401, 403):
        return CommandError(
            "HUB_PERMISSION", f"{what}: refused with status {status}; private or unknown, or set HF_TOKEN"
        )
    if status == 404:
        return CommandError("HUB_NOT_FOUND", f"{what}: not found, expected a repository, revision and file of the hub")
    return CommandError("HUB_UNREACHABLE", f"{what}: the hub answered with status {status}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]
