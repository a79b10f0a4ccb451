"""A model on a hub as far as a report needs it: small files whole, of weights only the headers."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from huggingface_hub import hf_hub_url
from huggingface_hub.utils import build_hf_headers, get_session, hf_raise_for_status  # type: ignore[attr-defined]

from imp_service.cli.failure import CommandError, warning_line
from imp_service.cli.hub.choose import HubFile, RepositoryModel
from imp_service.cli.hub.get import HubModel, find_cached, only_choice, path_in
from imp_service.cli.hub.header import MAX_HEADER_BYTES, BrokenHeader, gguf_header, safetensors_header
from imp_service.cli.hub.hub import Repository, errors_of, read_repository
from imp_service.cli.hub.reference import HubReference, read_reference

# The first request for a header. Each further one doubles what is there.
_FIRST_BYTES = 1024**2
_HEADERS = {".gguf": gguf_header, ".safetensors": safetensors_header}


@contextmanager
def current_model(word: str) -> Iterator[HubModel]:
    """Within the `with` block, the current model that `word` names: cached if that is current, else only its headers.

    If the hub is unreachable, it is the cached model, with a warning. Raises CommandError.
    """
    cached = find_cached(word)
    try:
        repository = read_repository(read_reference(word), None)
    except CommandError as error:
        if error.reason != "HUB_UNREACHABLE" or cached is None:
            raise
        print(warning_line(f"{error.message}; the cache is used"), file=sys.stderr, flush=True)
        yield cached
        return
    # A cache with only some models of the repository may give another one than the repository does.
    choice = only_choice(word, read_reference(word), repository)
    if cached is not None and (cached.commit, cached.choice.name) == (repository.commit, choice.name):
        yield cached
        return
    with _headers(word, repository, choice) as model:
        yield model


@contextmanager
def remote_headers(word: str) -> Iterator[HubModel]:
    """Within the `with` block, a folder with the headers of the model that `word` names. Raises CommandError."""
    repository = read_repository(read_reference(word), None)
    with _headers(word, repository, only_choice(word, read_reference(word), repository)) as model:
        yield model


@contextmanager
def _headers(word: str, repository: Repository, choice: RepositoryModel) -> Iterator[HubModel]:
    reference = read_reference(word)
    with TemporaryDirectory(prefix="imp-headers-") as folder:
        for file in choice.files:
            _write(Path(folder) / file.name, _RemoteFile(reference, file, repository.commit))
        yield HubModel(path_in(Path(folder), choice), choice, repository.commit, reference.repository)


class _RemoteFile:
    """A file of the hub, read from its beginning as far as needed."""

    def __init__(self, reference: HubReference, file: HubFile, commit: str) -> None:
        self.name = f"{reference.repository}:{file.name}"
        self.n_bytes = file.n_bytes
        self._url = hf_hub_url(reference.repository, file.name, revision=commit)
        self._data = bytearray()

    def read(self, n_bytes: int) -> bytearray:
        """The file's first bytes: at least so many, unless it is shorter."""
        if n_bytes > len(self._data) < self.n_bytes:
            self._fetch(min(max(n_bytes, 2 * len(self._data), _FIRST_BYTES), self.n_bytes))
        return self._data

    def _fetch(self, end: int) -> None:
        begin = len(self._data)
        headers = build_hf_headers() | {"Range": f"bytes={begin}-{end - 1}"}
        with (
            errors_of(self.name),
            get_session().stream("GET", self._url, headers=headers, follow_redirects=True) as got,
        ):
            hf_raise_for_status(got)
            if got.status_code != 206:  # a server without ranges sends the file from its beginning
                self._data.clear()
            elif not (answer := got.headers.get("Content-Range", "")).startswith(f"bytes {begin}-"):
                raise CommandError(
                    "HUB_INVALID", f"{self.name}: the hub sent {answer}, expected bytes {begin}-{end - 1}"
                )
            for piece in got.iter_bytes():
                self._data += piece
                if len(self._data) >= end:
                    break
        if len(self._data) < end:
            raise CommandError("HUB_UNREACHABLE", f"{self.name}: {len(self._data)} bytes arrived, expected {end}")
        del self._data[end:]


def _write(path: Path, file: _RemoteFile) -> None:
    measure = _HEADERS.get(path.suffix.lower())
    try:
        if measure is None and file.n_bytes > MAX_HEADER_BYTES:
            raise BrokenHeader(f"{file.n_bytes} bytes, limit {MAX_HEADER_BYTES}")
        end = file.n_bytes if measure is None else measure(file.read)
    except BrokenHeader as error:
        raise CommandError("HUB_INVALID", f"{file.name}: {error}") from None
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as written:
        written.write(memoryview(file.read(end))[:end])
        # The weights are a hole, which takes no space on the disk.
        written.truncate(file.n_bytes)
