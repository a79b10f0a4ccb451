"""Variables that miss the second underscore between section and key: nothing reads them, so they are told."""

from collections.abc import Iterable

from imp_service.config.environment import undivided_names, variable_name
from imp_service.config.settings import TABLE
from imp_service.config.table import ANY_NAME, keys_of
from imp_service.config.toml import write_path


def near_names(names: Iterable[str] | None = None) -> list[str]:
    """A sentence for each of these variables, the process's own by default, that only lacks underscores to be a key."""
    undivided = {variable_name(["_".join(path)]): path for path, _ in keys_of(TABLE) if ANY_NAME not in path}
    found = [name for name in (undivided_names() if names is None else names) if name in undivided]
    return [
        f"{name}: is not read, expected {variable_name(undivided[name])} for {write_path(undivided[name])}"
        for name in found
    ]
