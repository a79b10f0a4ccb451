"""Finds and downloads the model that a reference names."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from imp_service.cli.failure import CommandError, warning_line
from imp_service.cli.hub.cache import cached_files, cached_folder, cached_models, repositories_named
from imp_service.cli.hub.choose import RepositoryModel, choices_of, choose, models_of, require_whole, with_projector
from imp_service.cli.hub.hub import Repository, Verbosity, download, read_repository
from imp_service.cli.hub.reference import PREFIX, HubReference, read_reference
from imp_service.cli.output import bytes_text, write_number_table


class HubModel(NamedTuple):
    """A model of a hub that can be opened here."""

    path: Path
    choice: RepositoryModel
    commit: str
    repository: str

    @property
    def reference(self) -> HubReference:
        """Names this model and no other of the repository."""
        return HubReference(self.repository, None if self.choice.name == "." else self.choice.name)


def get_model(
    word: str,
    revision: str | None = None,
    folder: Path | None = None,
    *,
    verbosity: Verbosity = Verbosity.ALL,
    with_vision: bool = True,
) -> Path:
    """The path of the downloaded model, with its projector beside it unless that is not wanted.

    Raises CommandError. If the reference is ambiguous, prints the possible models first, or names them in the error.
    """
    reference = read_reference(word)
    try:
        repository = read_repository(reference, revision)
    except CommandError as error:
        cached = cached_folder(reference, revision)
        if error.reason != "HUB_UNREACHABLE" or cached is None or folder is not None:
            raise
        if verbosity is Verbosity.ALL:
            print(warning_line(f"{error.message}; the cache is used"), file=sys.stderr, flush=True)
        repository = Repository(cached_files(cached), None, cached.name)
        choice = only_choice(word, reference, repository, verbosity, with_vision=with_vision)
        if not _is_whole(cached, choice):
            raise CommandError("HUB_UNREACHABLE", f"{error.message}; the cache has only a part of the model") from None
        return path_in(cached, choice)
    choice = only_choice(word, reference, repository, verbosity, with_vision=with_vision)
    paths = download(reference, choice, revision, folder, verbosity)
    if choice.name != ".":
        return paths[0]
    return next(path.parent for file, path in zip(choice.files, paths, strict=True) if "/" not in file.name)


def only_choice(
    word: str,
    reference: HubReference,
    repository: Repository,
    verbosity: Verbosity = Verbosity.ALL,
    *,
    with_vision: bool = True,
) -> RepositoryModel:
    """The model that the reference names, with its projector. If there are several, prints them and raises
    CommandError.
    """
    choices = choices_of(repository.files)
    found = choose(choices, reference.wanted)
    if len(found) == 1:
        require_whole(found[0])
        if verbosity is Verbosity.ALL and reference.wanted is None and (n := len(models_of(choices))) > 1:
            others = f"imp pull {reference.repository} --list shows the others"
            print(f"— {found[0].name} of {n} models; {others}.", file=sys.stderr, flush=True)
        return with_projector(found[0], choices) if with_vision else found[0]
    shown = found or choices
    if verbosity is Verbosity.ALL:
        write_choices(repository, shown)
    if not shown:
        raise CommandError("HUB_NOT_FOUND", f"{word}: found neither GGUF nor safetensors files")
    problem = "" if found else "no such file or type, "
    if verbosity is Verbosity.ALL:
        expected = f"expected one of these, such as {reference.repository}:{shown[0].name}"
    else:
        expected = f"expected one of {', '.join(f'{PREFIX}{reference.repository}:{each.name}' for each in shown)}"
    raise CommandError("USAGE", f"{word}: {problem}{expected}")


def path_in(folder: Path, choice: RepositoryModel) -> Path:
    """The path of the model in a folder with the files of its repository."""
    return folder if choice.name == "." else folder / choice.files[0].name


def find_cached(word: str) -> HubModel | None:
    """The model in the cache; None unless all of its files are there. Uses no network."""
    reference = read_reference(word)
    folder = cached_folder(reference, None)
    choices = [] if folder is None else choices_of(cached_files(folder))
    found = choose(choices, reference.wanted)
    if folder is None or len(found) != 1 or not _is_whole(folder, found[0]):
        return None
    choice = with_projector(found[0], choices)
    return HubModel(path_in(folder, choice), choice, folder.name, reference.repository)


def find_downloaded(name: str) -> HubModel | None:
    """The downloaded model that NAME or OWNER/NAME names, perhaps with :TYPE or :FILE; None if there is none.

    Upper and lower case are alike. Uses no network. Raises CommandError if the name fits several models.
    """
    wanted_name, colon, wanted = name.partition(":")
    repositories = repositories_named(wanted_name)
    found = [find_cached(f"{repository}{colon}{wanted}") for repository in repositories]
    if len(found) == 1 and found[0] is not None:
        return found[0]
    if not repositories:
        return None
    known = (model.reference for model in cached_models())
    names = ", ".join(sorted(str(reference) for reference in known if reference.repository in repositories))
    raise CommandError("MODEL_MISSING", f"{name}: no single downloaded model, expected one of {names}")


def _is_whole(folder: Path, choice: RepositoryModel) -> bool:
    """Whether the folder has every file of the model. A download that was interrupted leaves some."""
    try:
        require_whole(choice)
    except CommandError:
        return False
    names = {file.name for file in choice.files}
    return choice.name != "." or names >= {"config.json", *_indexed(folder)}


def _indexed(folder: Path) -> set[str]:
    """The weight files that the directory's index names. None of a broken index, which the load refuses."""
    index = folder / "model.safetensors.index.json"
    try:
        return set(json.loads(index.read_bytes())["weight_map"].values()) if index.exists() else set()
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return set()


def list_models(word: str, revision: str | None) -> None:
    repository = read_repository(read_reference(word), revision)
    write_choices(repository, choices_of(repository.files))


def write_choices(repository: Repository, choices: Sequence[RepositoryModel]) -> None:
    """A table on stdout: name, size, bits of a weight, and whether it is smaller than the memory of this machine."""
    if not choices:
        return
    from imp_service.config.machine import memory_limit

    limit = memory_limit().limit_bytes or float("inf")
    rows = []
    for choice in choices:
        bits = f"{8 * choice.n_bytes / repository.n_parameters:.2f}" if repository.n_parameters else "-"
        rows.append((choice.name, bytes_text(choice.n_bytes), bits, "yes" if choice.n_bytes < limit else "no"))
    write_number_table(sys.stdout, ("file", "size", "bits/weight", "fits"), rows)
    sys.stdout.flush()
