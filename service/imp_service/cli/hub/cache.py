"""The models in the hub's cache, which imp shares with other tools."""

import os
from importlib import import_module
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import constants

from imp_service.cli.failure import CommandError
from imp_service.cli.hub.choose import HubFile, RepositoryModel, choices_of, choose, is_inside
from imp_service.cli.hub.outside_names import require_name
from imp_service.cli.hub.reference import HubReference, is_repository, read_reference

# The file with a digest has the name of the digest's file and this suffix.
DIGEST = ".sha256"
_KIND = "models--"


class CachedModel(NamedTuple):
    reference: HubReference
    n_bytes: int
    folder: Path
    choice: RepositoryModel


def cached_models() -> list[CachedModel]:
    """Returns the cached models that imp can read, of every revision."""
    found = []
    for repository in sorted(Path(constants.HF_HUB_CACHE).glob(f"{_KIND}*--*")):
        name = repository.name.removeprefix(_KIND).replace("--", "/", 1)
        if not is_repository(name):
            continue
        for folder in sorted((repository / "snapshots").glob("*")):
            found += [_model(name, folder, choice) for choice in choices_of(cached_files(folder))]
    return found


def repositories_named(name: str) -> list[str]:
    """The cached repositories that NAME or OWNER/NAME names. Upper and lower case are alike."""
    known = {model.reference.repository for model in cached_models()}
    return sorted(each for each in known if name.lower() in (each.lower(), each.partition("/")[2].lower()))


def cached_folder(reference: HubReference, revision: str | None) -> Path | None:
    """The folder of the cache with the files of this revision."""
    repository = Path(constants.HF_HUB_CACHE) / (_KIND + reference.repository.replace("/", "--"))
    try:
        commit = (repository / "refs" / (revision or constants.DEFAULT_REVISION)).read_text().strip()
    except OSError:
        return None
    folder = repository / "snapshots" / require_name(commit)
    return folder if folder.is_dir() else None


def cached_files(folder: Path) -> list[HubFile]:
    paths = (path for path in folder.rglob("*") if path.is_file() and path.suffix != DIGEST)
    files = (HubFile(str(path.relative_to(folder)), path.stat().st_size, None) for path in paths)
    return [file for file in files if is_inside(file.name)]


def _model(name: str, folder: Path, choice: RepositoryModel) -> CachedModel:
    return CachedModel(HubReference(name, None if choice.name == "." else choice.name), choice.n_bytes, folder, choice)


def remove(word: str) -> int:
    """Deletes the files of a model, or of all models of a repository; returns the bytes. Raises CommandError."""
    reference = read_reference(word) if "/" in word else _named(word)
    models = [model for model in cached_models() if model.reference.repository == reference.repository]
    if reference.wanted is not None:
        chosen = choose([model.choice for model in models], reference.wanted)
        models = [model for model in models if model.choice in chosen]
    if not models:
        raise CommandError("HUB_NOT_FOUND", f"{word}: not in the cache, imp ls lists what is")
    return sum(remove_file(model.folder / file.name) for model in models for file in model.choice.files)


def _named(word: str) -> HubReference:
    """The downloaded repository with this name, whoever owns it. Raises CommandError unless it is one."""
    name, _, wanted = word.partition(":")
    found = repositories_named(name)
    if not found:
        raise CommandError("HUB_NOT_FOUND", f"{word}: not in the cache, imp ls lists what is")
    if len(found) > 1:
        raise CommandError("USAGE", f"{word}: expected one of {', '.join(found)}")
    return HubReference(found[0], wanted or None)


def remove_file(path: Path) -> int:
    """Deletes a file of a snapshot and its digest; its content too, unless another file of the cache shares it.

    A link that leads out of the repository is the user's: its target stays. Returns the bytes.
    """
    path.with_name(path.name + DIGEST).unlink(missing_ok=True)
    if not path.is_symlink():
        n_bytes = path.stat().st_size
        path.unlink()
        return n_bytes
    content = _target(path)
    path.unlink()
    repository = next(parent.parent for parent in path.parents if parent.name == "snapshots")
    links = (each for each in (repository / "snapshots").rglob("*") if each.is_symlink())
    if content.parent != repository / "blobs" or any(_target(each) == content for each in links):
        return 0
    return _remove_content(content)


def _target(link: Path) -> Path:
    """The path that a link names, which may be a link itself."""
    return Path(os.path.normpath(link.parent / link.readlink()))


def _remove_content(content: Path) -> int:
    if not content.is_symlink():
        n_bytes = content.stat().st_size if content.exists() else 0
        content.unlink(missing_ok=True)
        return n_bytes
    # The library keeps one copy for all repositories, and knows which of them use it.
    cache = Path(constants.HF_HUB_CACHE)
    store = import_module("huggingface_hub.utils._shared_blobs")
    shared = store.shared_blob_target(content, cache)
    content.unlink()
    return 0 if shared is None else int(store.sweep_shared_blob(shared, cache_dir=cache))
