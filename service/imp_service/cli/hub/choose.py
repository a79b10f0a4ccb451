"""Chooses the files of a repository that make one model."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import PurePosixPath
from typing import NamedTuple

from imp_service.cli.failure import CommandError

_PART = re.compile(r"-\d{5}-of-(\d{5})$")
_WEIGHTS = re.compile(r"\.(gguf|safetensors)$", re.IGNORECASE)
_GGUF = re.compile(r"\.gguf$", re.IGNORECASE)
# The files of a directory that imp reads. It downloads no other files: no code, no pickles.
_OF_DIRECTORY = re.compile(
    r"(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab|chat_template|modules)\.json"
    r"|(pre)?processor_config\.json|config_sentence_transformers\.json|sentence_bert_config\.json"
    r"|\d+_\w+/(config\.json|model\.safetensors)"  # the modules of sentence-transformers
    r"|merges\.txt|vocab\.txt|tokenizer\.model|tekken\.json|chat_template\.jinja|additional_chat_templates/[^/]+\.jinja"
    r"|[^/]+\.safetensors(\.index\.json)?"
)
# Taken from a repository of several models if nothing is named, as other tools do.
USUAL_TYPE = "Q4_K_M"
# Draft heads in files of their own, as llama.cpp names and finds them.
_HEAD = re.compile(r"(^|/)mtp-[^/]+\.gguf$", re.IGNORECASE)
# The types of projectors, the preferred one first: others are smaller, but slower or less exact.
_PROJECTOR_TYPES = ("f16", "bf16", "q8_0")
# The same weights once more, in Mistral's own form, next to those that imp reads.
_CONSOLIDATED = re.compile(r"consolidated.*\.safetensors(\.index\.json)?")


class HubFile(NamedTuple):
    name: str  # its path in the repository
    n_bytes: int
    sha256: str | None


@dataclass(frozen=True, slots=True)
class RepositoryModel:
    """A model: one file, the parts of a split one, or a directory; perhaps with its projector as the last file."""

    name: str
    files: list[HubFile] = field(default_factory=list)

    @property
    def n_bytes(self) -> int:
        return sum(file.n_bytes for file in self.files)


def choices_of(files: Iterable[HubFile]) -> list[RepositoryModel]:
    """The models of a repository: its GGUF files, or its safetensors as one. Refuses names that leave the folder."""
    found: dict[str, RepositoryModel] = {}
    directory = RepositoryModel(".")
    for file in sorted(files):
        require_inside(file.name)
        if _GGUF.search(file.name):
            name = _PART.sub("", _GGUF.sub("", file.name)) + ".gguf"
            found.setdefault(name, RepositoryModel(name)).files.append(file)
        elif _OF_DIRECTORY.fullmatch(file.name):
            directory.files.append(file)
    if found:
        return list(found.values())
    if any(file.name.startswith("model") and "safetensors" in file.name for file in directory.files):
        directory.files[:] = [file for file in directory.files if not _CONSOLIDATED.fullmatch(file.name)]
    return [directory] if any(file.name.endswith(".safetensors") for file in directory.files) else []


def choose(choices: Sequence[RepositoryModel], wanted: str | None) -> list[RepositoryModel]:
    """Returns the choices that `wanted` names, by a file or by a type in any case.

    None: the models, or of several the one of the usual type.
    """
    if wanted is None:
        models = models_of(choices)
        usual = choose(models, USUAL_TYPE)
        return usual if len(usual) == 1 else models or list(choices)
    for choice in choices:
        if wanted in (choice.name, *(file.name for file in choice.files)):
            return [choice]
    by_type = re.compile(rf"(?:^|[-._/]){re.escape(_GGUF.sub('', wanted))}(?:$|[-./])", re.IGNORECASE)
    found = [choice for choice in choices if by_type.search(_GGUF.sub("", choice.name))]
    found = [choice for choice in found if "ud-" not in choice.name.lower()] or found
    return models_of(found) or found


def models_of(choices: Sequence[RepositoryModel]) -> list[RepositoryModel]:
    """The choices without vision projectors and draft heads."""
    return [choice for choice in choices if not _is_part(choice)]


def with_projector(choice: RepositoryModel, choices: Sequence[RepositoryModel]) -> RepositoryModel:
    """The model with the projector of its folder that lets it read images, if there is one."""
    beside = PurePosixPath(choice.name).parent
    found = [each for each in choices if _is_projector(each) and PurePosixPath(each.name).parent == beside]
    if choice.name == "." or _is_part(choice) or not found:
        return choice
    return replace(choice, files=[*choice.files, *min(found, key=_projector_order).files])


def _is_part(choice: RepositoryModel) -> bool:
    """Whether it is no model by itself."""
    return _is_projector(choice) or _HEAD.search(choice.name) is not None


def _is_projector(choice: RepositoryModel) -> bool:
    from imp_service.core.vision import is_projector  # imported here: the core takes a moment

    return is_projector(PurePosixPath(choice.name))


def _projector_order(projector: RepositoryModel) -> tuple[int, str]:
    types = [kind for kind in _PROJECTOR_TYPES if choose([projector], kind)]
    return (_PROJECTOR_TYPES.index(types[0]) if types else len(_PROJECTOR_TYPES)), projector.name


def require_inside(name: str) -> None:
    """Raises for a name that is not a plain path inside a folder."""
    if not is_inside(name):
        raise CommandError("HUB_INVALID", f"{name}: expected a path inside the repository")


def is_inside(name: str) -> bool:
    return "\\" not in name and name.isprintable() and not {"", ".", ".."} & set(name.split("/"))


def require_whole(choice: RepositoryModel) -> None:
    """Raises if a part of a split file is missing."""
    parts: Counter[tuple[str, int]] = Counter()
    for file in choice.files:
        stem = _WEIGHTS.sub("", file.name)
        if (part := _PART.search(stem)) is not None:
            parts[stem[: part.start()], int(part[1])] += 1
    for (name, total), n in parts.items():
        if n != total:
            shown = choice.name if choice.name != "." else name
            raise CommandError("HUB_INVALID", f"{shown}: {n} parts of {total}, expected all of them")
