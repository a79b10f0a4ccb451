"""Talks to the hub: lists a repository, downloads its files and checks the SHA-256 of each."""

import hashlib
import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import HfApi, constants, errors, hf_hub_download
from huggingface_hub.utils.tqdm import disable_progress_bars

from imp_service.cli.failure import CommandError
from imp_service.cli.hub.cache import DIGEST
from imp_service.cli.hub.choose import Choice, HubFile
from imp_service.cli.hub.reference import Reference

_ENDPOINT = "https://huggingface.co"
_BLOCK_BYTES = 4 * 1024**2


class Repository(NamedTuple):
    files: list[HubFile]
    n_parameters: int | None
    commit: str


def read_repository(reference: Reference, revision: str | None) -> Repository:
    """The files of the repository at this revision. Raises CommandError."""
    with errors_of(str(reference)):
        info = HfApi().model_info(reference.repository, revision=revision, files_metadata=True)
    files = [
        HubFile(each.rfilename, each.size or 0, each.lfs.sha256 if each.lfs else None) for each in info.siblings or []
    ]
    weights = info.gguf or {}
    total = weights.get("total") if isinstance(weights, dict) else None
    commit = info.sha or revision or constants.DEFAULT_REVISION
    return Repository(files, total if isinstance(total, int) else None, commit)


def download(reference: Reference, choice: Choice, revision: str | None, folder: Path | None) -> list[Path]:
    """The files of the choice, in the hub's cache or in `folder`. Raises CommandError and OSError."""
    if not sys.stderr.isatty():
        disable_progress_bars()
    paths = []
    for file in choice.files:
        with errors_of(f"{reference.repository}:{file.name}"):
            path = Path(hf_hub_download(reference.repository, file.name, revision=revision, local_dir=folder))
        digest = _sha256(path)
        if file.sha256 is not None and digest != file.sha256:
            path.resolve().unlink()
            path.unlink(missing_ok=True)
            raise CommandError("HUB_CORRUPT", f"{file.name}: SHA-256 {digest}, expected {file.sha256}; it is removed")
        if file.sha256 is not None:
            _write_digest(path, digest)
            print(f"{digest}  {file.name}", file=sys.stderr, flush=True)
        paths.append(path)
    return paths


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
    path.with_name(f"{path.name}{DIGEST}").write_text(f"{digest}  {path.name}\n")


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
    except (errors.OfflineModeIsEnabled, errors.LocalEntryNotFoundError) as error:
        raise CommandError("HUB_UNREACHABLE", f"{what}: {_first_line(error.__cause__ or error)}") from None
    except OSError as error:
        if error.errno is not None:
            raise
        raise CommandError("HUB_UNREACHABLE", f"{what}: {_first_line(error)}") from None
    except (ValueError, RuntimeError) as error:
        raise CommandError("HUB_INVALID", f"{what}: {_first_line(error)}") from None
    except Exception as error:
        if type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "httpcore"):
            raise CommandError("HUB_UNREACHABLE", f"{what}: {_first_line(error)}") from None
        raise


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
