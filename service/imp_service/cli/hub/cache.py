"""The models in the hub's cache, which imp shares with other tools."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import constants

from imp_service.cli.failure import CommandError
from imp_service.cli.hub.choose import Choice, HubFile, choices_of, choose
from imp_service.cli.hub.reference import Reference, read_reference

# The file with a digest has the name of the digest's file and this suffix.
DIGEST = ".sha256"
_KIND = "models--"


class CachedModel(NamedTuple):
    reference: Reference
    n_bytes: int
    folder: Path
    choice: Choice


def cached_models() -> list[CachedModel]:
    """Returns the cached models that imp can read, of every revision."""
    found = []
    for repository in sorted(Path(constants.HF_HUB_CACHE).glob(f"{_KIND}*--*")):
        name = repository.name.removeprefix(_KIND).replace("--", "/", 1)
        for folder in sorted((repository / "snapshots").glob("*")):
            found += [_model(name, folder, choice) for choice in choices_of(cached_files(folder))]
    return found


def cached_folder(reference: Reference, revision: str | None) -> Path | None:
    """The folder of the cache with the files of this revision."""
    repository = Path(constants.HF_HUB_CACHE) / (_KIND + reference.repository.replace("/", "--"))
    try:
        commit = (repository / "refs" / (revision or constants.DEFAULT_REVISION)).read_text().strip()
    except OSError:
        return None
    folder = repository / "snapshots" / commit
    return folder if folder.is_dir() else None


def cached_files(folder: Path) -> list[HubFile]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != DIGEST)
    return [HubFile(str(path.relative_to(folder)), path.stat().st_size, None) for path in paths]


def _model(name: str, folder: Path, choice: Choice) -> CachedModel:
    return CachedModel(Reference(name, None if choice.name == "." else choice.name), choice.n_bytes, folder, choice)


def remove(word: str) -> int:
    """Deletes the files of a model, or of all models of a repository; returns the bytes. Raises CommandError."""
    reference = read_reference(word)
    models = [model for model in cached_models() if model.reference.repository == reference.repository]
    if reference.wanted is not None:
        chosen = choose([model.choice for model in models], reference.wanted)
        models = [model for model in models if model.choice in chosen]
    if not models:
        raise CommandError("HUB_NOT_FOUND", f"{word}: not in the cache, imp ls lists what is")
    paths = [path for model in models for file in model.choice.files for path in _paths_of(model.folder / file.name)]
    n_bytes = sum(path.lstat().st_size for path in paths)
    for path in paths:
        path.unlink()
    return n_bytes


def _paths_of(path: Path) -> Iterator[Path]:
    """The link, its target, and the digest file next to it."""
    if path.is_symlink():
        yield path.resolve()
    yield path
    digest = path.with_name(path.name + DIGEST)
    if digest.exists():
        yield digest
