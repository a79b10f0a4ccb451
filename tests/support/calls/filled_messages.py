"""Builds messages with every field set to a value that depends only on the field's number."""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

FLOATS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


def filled(descriptor: Descriptor, member: int = 0) -> Message:
    """Sets the `member`-th field of each oneof; the count wraps around."""
    message = GetMessageClass(descriptor)()
    for field in descriptor.fields:
        oneof = field.containing_oneof
        if oneof is not None and len(oneof.fields) > 1 and field is not oneof.fields[member % len(oneof.fields)]:
            continue
        _fill(message, field, member)
    return message


def _fill(message: Any, field: FieldDescriptor, member: int) -> None:
    inner = field.message_type
    if inner is not None and inner.full_name == "google.protobuf.Struct":
        getattr(message, field.name).update({"key": field.number, "list": ["a", None, True]})
    elif inner is not None and inner.GetOptions().map_entry:
        _fill_map(getattr(message, field.name), field, member)
    elif inner is not None and field.is_repeated:
        getattr(message, field.name).extend([filled(inner, member), filled(inner, member + 1)])
    elif inner is not None:
        getattr(message, field.name).CopyFrom(filled(inner, member))
        getattr(message, field.name).SetInParent()
    elif field.is_repeated:
        getattr(message, field.name).extend([_value(field, 0), _value(field, 1)])
    else:
        setattr(message, field.name, _value(field, 0))


def _fill_map(values: Any, field: FieldDescriptor, member: int) -> None:
    key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
    if value.message_type is not None:
        values[_value(key, 0)].CopyFrom(filled(value.message_type, member))
    elif key.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        values[_value(key, 0)] = _value(value, 0)
    else:
        values[field.number] = field.number + 0.5


def _value(field: FieldDescriptor, i: int) -> Any:
    n = field.number + 100 * i
    if field.enum_type is not None:
        return field.enum_type.values[-1].number
    if field.cpp_type in FLOATS:
        return n + 0.25
    if field.cpp_type == FieldDescriptor.CPPTYPE_BOOL:
        return True
    if field.type == FieldDescriptor.TYPE_BYTES:
        return bytes([0, 255, n])
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return f"{field.name} {n} é"
    return n + (2**40 if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64 else 0)
