"""Checked values to frozen Settings, and the pairs of values that cannot work together."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from imp_service.config.contradictions import listen_contradictions
from imp_service.config.settings import TABLE, Model, Settings
from imp_service.config.table import Key, Node, Section
from imp_service.config.toml import KeyPath, write_key, write_path
from imp_service.config.tree import Tree, Value


def build(tree: Tree) -> Settings:
    settings = _build(TABLE, tree)
    assert isinstance(settings, Settings)
    return settings


def _build(node: Node, tree: Tree | Value) -> object:
    match node:
        case Key():
            assert isinstance(tree, Value)
            return tree.value
        case Section():
            assert isinstance(tree, dict)
            # What the tree leaves out, the section's class fills with the table's defaults.
            return node.make(**{name: _build(node.nodes[name], inner) for name, inner in tree.items()})
        case _:
            assert isinstance(tree, dict)
            return MappingProxyType({name: _build(node.item, inner) for name, inner in tree.items()})


def contradictions(settings: Settings) -> Iterator[tuple[KeyPath, KeyPath, str]]:
    """Values that are good alone and impossible together: both keys, and why."""
    scheduler = settings.scheduler
    if scheduler.step_tokens < scheduler.max_running:
        yield (
            ("scheduler", "max_running"),
            ("scheduler", "step_tokens"),
            f"scheduler.max_running is {scheduler.max_running}, above scheduler.step_tokens, {scheduler.step_tokens}: "
            "each sequence takes a token of every step",
        )
    if scheduler.prefill_chunk > scheduler.step_tokens:
        yield (
            ("scheduler", "prefill_chunk"),
            ("scheduler", "step_tokens"),
            f"scheduler.prefill_chunk is {scheduler.prefill_chunk}, "
            f"above scheduler.step_tokens, {scheduler.step_tokens}",
        )
    device = settings.device
    pinned = len(device.cpus) if isinstance(device.cpus, tuple) else 0
    if pinned and isinstance(device.threads, int) and pinned != device.threads:
        yield (
            ("device", "cpus"),
            ("device", "threads"),
            f"device.cpus names {pinned}, and device.threads is {device.threads}: expected one for each thread",
        )
    yield from listen_contradictions(settings)
    yield from _model_names(settings.model, settings.models)


def _model_names(first: Model, models: Mapping[str, Model]) -> Iterator[tuple[KeyPath, KeyPath, str]]:
    """Each model beside the first has a file, and no two are called alike."""
    taken: dict[str, KeyPath] = {first.name: ("model", "name")} if first.name else {}
    for key, model in models.items():
        if model.path is None:
            yield ("models", key, "path"), ("models", key), f"models.{write_key(key)} has no path"
        name = model.name or key
        if name in taken:
            yield ("models", key, "name"), taken[name], f"{name} is also the name of {write_path(taken[name])}"
        taken[name] = ("models", key, "name")
