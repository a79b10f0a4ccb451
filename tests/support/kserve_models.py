"""Checks documents against the classes of KServe's Python package, generated from its resource definitions."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

PLAIN: dict[str, type | tuple[type, ...]] = {"str": str, "int": int, "bool": bool, "float": (int, float)}
# Text or numbers; the package has no class for them.
FREE = {"object", "ResourceQuantity", "Quantity", "IntOrString"}


def faults(data: Any, kind: str, path: str = "") -> Iterator[str]:
    """Yields unknown fields, missing fields, and values of wrong types."""
    if kind in FREE:
        return
    if kind in PLAIN:
        if not isinstance(data, PLAIN[kind]):
            yield f"{path}: {data!r} is no {kind}"
    elif found := re.fullmatch(r"[Ll]ist\[(.*)\]", kind):
        for i, item in enumerate(data):
            yield from faults(item, found[1], f"{path}[{i}]")
    elif found := re.fullmatch(r"[Dd]ict[\[(]str, (.*)[\])]", kind):
        for name, item in data.items():
            yield from faults(item, found[1], f"{path}.{name}")
    else:
        yield from _faults_of_class(data, _class(kind), path)


def _class(kind: str) -> Any:
    ours = getattr(import_module("kserve.models"), kind, None)
    return ours if ours is not None else getattr(import_module("kubernetes.client"), kind)


def _faults_of_class(data: Any, klass: Any, path: str) -> Iterator[str]:
    if not isinstance(data, dict):
        yield f"{path}: {data!r} is no object"
        return
    types = klass.openapi_types() if callable(klass.openapi_types) else klass.openapi_types
    names = klass.attribute_map() if callable(klass.attribute_map) else klass.attribute_map
    by_name = {name: attribute for attribute, name in names.items()}
    values = {}
    for name, value in data.items():
        if name in by_name:
            values[by_name[name]] = value
            yield from faults(value, types[by_name[name]], f"{path}.{name}")
        else:
            yield f"{path}.{name}: unknown"
    if klass.__module__.startswith("kserve."):
        try:
            klass(**values)
        except ValueError as error:  # a field that must be set
            yield f"{path}: {error}"
