"""Applies `-m`: selects an entry of [models], or a file, as [model]."""

from dataclasses import replace
from pathlib import Path

from imp_service.config.check import check_assignment
from imp_service.config.config import Config, build
from imp_service.config.settings import TABLE
from imp_service.config.sources import of_text_option
from imp_service.config.tree import KeyOrigin, Tree, Value, merged

_ORIGIN = KeyOrigin("--model")


def select_model(config: Config, word: str) -> Config:
    """`config` with the model that `-m` names: a file that exists, else an entry of [models], else a missing file.

    If [model] is about another file, its keys are dropped, except those of `--set model.…`.
    """
    if names_entry(config, word) and not Path(word).exists():
        return select_entry(config, word)
    current = _model(config)
    is_same_file = config.settings.model.path in (None, word)
    kept = current if is_same_file else _from_command_line(current)
    named = check_assignment(TABLE, replace(of_text_option("--model", "model.path", word), origin=_ORIGIN))
    return _with_model(config, merged({"model": kept}, named)["model"])


def names_entry(config: Config, word: str) -> bool:
    """Whether [models] has an entry of this name."""
    entries = config.tree.get("models")
    return isinstance(entries, dict) and word in entries


def select_entry(config: Config, name: str) -> Config:
    """`config` with this entry of [models] as [model]."""
    entries = config.tree["models"]
    assert isinstance(entries, dict)  # narrows
    entry = entries[name]
    assert isinstance(entry, dict)  # narrows
    kept = merged(entry, _from_command_line(_model(config)))
    return _with_model(config, merged({"name": Value(name, _ORIGIN)}, kept))


def _model(config: Config) -> Tree:
    section = config.tree.get("model")
    return section if isinstance(section, dict) else {}


def _with_model(config: Config, model: Tree | Value) -> Config:
    tree = {**config.tree, "model": model}
    return Config(build(tree), config.file, tree)


def _from_command_line(tree: Tree) -> Tree:
    """The values that came from `--set` and from a command's own options."""
    kept: Tree = {}
    for name, node in tree.items():
        if isinstance(node, dict):
            if below := _from_command_line(node):
                kept[name] = below
        elif node.origin.source in ("--set", "option"):
            kept[name] = node
    return kept
