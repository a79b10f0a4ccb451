"""Fills messages from plain data, and finds every value that a message cannot hold."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from numbers import Integral
from typing import Any

from google.protobuf.descriptor import FieldDescriptor as FieldTypes
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from ...api.errors import Violation, refuse
from ...api.rules import range_text, shown

# The class depends on how protobuf was built.
FieldDescriptor = Any
_EXPECTED = {
    FieldTypes.CPPTYPE_UINT32: "a whole number",
    FieldTypes.CPPTYPE_UINT64: "a whole number",
    FieldTypes.CPPTYPE_INT64: "a whole number",
    FieldTypes.CPPTYPE_FLOAT: "a number",
    FieldTypes.CPPTYPE_BOOL: "True or False",
    FieldTypes.CPPTYPE_STRING: "a text",
}


_MOST = {FieldTypes.CPPTYPE_UINT32: 2**32 - 1, FieldTypes.CPPTYPE_UINT64: 2**64 - 1}


class MessageWriter:
    """Fills one request. finish() raises FIELD_INVALID with all values that did not fit."""

    def __init__(self) -> None:
        self._violations: list[Violation] = []

    def finish(self) -> None:
        """Raises the violations that fill() and put() found."""
        refuse(self._violations)

    def fill(self, message: Message, options: Any, path: str, leaves_out: Collection[str] = ()) -> None:
        """Sets the fields of a message to those of an option class. Fields with their default stay unset."""
        for field in fields(options):
            value = getattr(options, field.name)
            if (
                field.name in leaves_out
                or value is None
                or (type(value) is type(field.default) and value == field.default)
            ):
                continue
            self.put(message, field.name, value, f"{path}.{field.name}" if path else field.name)

    def put(self, message: Message, name: str, value: Any, path: str) -> None:
        """Sets one field."""
        field: FieldDescriptor = message.DESCRIPTOR.fields_by_name[name]
        if is_dataclass(value):
            nested = getattr(message, name)
            nested.SetInParent()
            self.fill(nested, value, path)
        elif isinstance(value, Mapping):
            self._update(getattr(message, name), field.message_type.fields_by_name, value, path)
        elif field.is_repeated:
            self.extend(getattr(message, name), field, value, path)
        elif field.enum_type is not None:
            self._put_word(message, field, value, path)
        elif field.message_type is Duration.DESCRIPTOR:
            self.put_seconds(getattr(message, name), value, path)
        else:
            self._try(field, partial(setattr, message, name), value, path)

    def _put_word(self, message: Message, field: FieldDescriptor, value: Any, path: str) -> None:
        """Sets an enum to the value that the library calls by this word."""
        prefix = field.enum_type.values_by_number[0].name.removesuffix("UNSPECIFIED")
        words = {each.name.removeprefix(prefix).lower(): each.number for each in field.enum_type.values if each.number}
        if value in words:
            setattr(message, field.name, words[value])
        else:
            self._violations.append(Violation(path, f"{shown(value)}, expected one of {', '.join(words)}"))

    def _update(self, target: Any, entry: Mapping[str, FieldDescriptor], values: Mapping[Any, Any], path: str) -> None:
        for key, value in values.items():
            try:
                target[key] = 0
            except (TypeError, ValueError, OverflowError):
                self._refuse(entry["key"], key, f"{path}[{key}]")
            else:
                self._try(entry["value"], partial(target.__setitem__, key), value, f"{path}[{key}]")

    def extend(self, target: Any, field: FieldDescriptor, values: Iterable[Any], path: str) -> None:
        """Appends to a repeated field."""
        if isinstance(values, str):
            self._violations.append(Violation(path, f"{values!r}, expected a list"))
            return
        try:
            target.extend(values)
        except (TypeError, ValueError, OverflowError):
            del target[:]
            for i, each in enumerate(values):
                self._try(field, target.append, each, f"{path}[{i}]")

    def put_seconds(self, target: Duration, value: Any, path: str) -> None:
        """Sets a duration."""
        try:
            target.FromNanoseconds(round(value * 10**9))
            target.SetInParent()
        except (TypeError, ValueError, OverflowError):
            self._violations.append(Violation(path, f"{value!r}, expected seconds"))

    def _try(self, field: FieldDescriptor, take: Callable[[Any], None], value: Any, path: str) -> None:
        try:
            take(value)
        except UnicodeEncodeError as error:
            self._violations.append(Violation(path, f"a surrogate at character {error.start}"))
        except (TypeError, ValueError, OverflowError):
            self._refuse(field, value, path)

    def _refuse(self, field: FieldDescriptor, value: Any, path: str) -> None:
        expected = _EXPECTED.get(field.cpp_type, "another type")
        if isinstance(value, Integral) and field.cpp_type in _MOST:
            expected = range_text(0, _MOST[field.cpp_type])
        self._violations.append(Violation(path, f"{value!r}, expected {expected}"))
