"""Applies new settings to a running process: which keys take effect, and which need a restart."""

from dataclasses import dataclass

from imp_service.config.config import Config, Entry, build
from imp_service.config.contradictions import contradictions
from imp_service.config.errors import ConfigError
from imp_service.config.kinds import AUTO
from imp_service.config.toml import KeyPath
from imp_service.config.tree import Value, branch, merged, origin_at


@dataclass(frozen=True, slots=True)
class Reloaded:
    """The new settings, and the names of the keys that differ."""

    config: Config
    changed: tuple[str, ...]
    needs_restart: tuple[str, ...]


def reloaded(current: Config, fresh: Config) -> Reloaded:
    """`current` with the values of `fresh` for keys that can be reloaded.

    Raises ConfigError if a new value contradicts a value that stays.
    """
    before, after = _by_path(current), _by_path(fresh)
    differing = [path for path in {**before, **after} if _differ(before.get(path), after.get(path))]
    tree = current.tree
    changed, needs_restart = [], []
    for path in differing:
        entry = after.get(path) or before[path]
        if entry.key.reloads:
            tree = merged(tree, branch(path, Value(entry.value, entry.origin)))
            changed.append(entry.name)
        else:
            needs_restart.append(entry.name)
    settings = build(tree)
    for one, _, why in contradictions(settings):
        raise ConfigError(origin_at(fresh.tree, one).where(one), why)
    return Reloaded(Config(settings, fresh.file, tree), tuple(changed), tuple(needs_restart))


def _by_path(config: Config) -> dict[KeyPath, Entry]:
    return {entry.path: entry for entry in config.entries()}


def _differ(before: Entry | None, after: Entry | None) -> bool:
    if before is None or after is None:
        return True
    if before.origin.source == "auto" and after.value is AUTO:
        return False  # `auto` was resolved at the start
    return before.value != after.value
