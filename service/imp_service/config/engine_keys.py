"""Keys of imp.conf that are options of the engine: the core has their ranges, defaults and words."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from imp_service.config.kinds import Boolean, Integer, Kind, Real
from imp_service.config.quantities import Duration
from imp_service.config.table import key
from imp_service.tables import ENGINE_FIELDS


def engine_key(name: str, kind: Callable[[int, int], Kind[int]] = Integer) -> Any:
    """The key of one option of the engine; `kind` is how a whole number is written."""
    field = ENGINE_FIELDS[name]
    low, high, default = int(field.low), int(field.high), field.default
    if isinstance(default, bool):
        return key(Boolean(), default, field.meaning)
    if isinstance(default, float):
        return key(Real(field.low, field.high), default, field.meaning)
    if name.endswith("_ms"):
        return key(Duration(f"{low}ms", f"{high}ms"), timedelta(milliseconds=default), field.meaning)
    return key(kind(low, high), default, field.meaning)
