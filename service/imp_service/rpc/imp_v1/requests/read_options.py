"""Reads an option class from the message of imp.v1 that has its fields, by their names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cache
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.duration_pb2 import Duration
from google.protobuf.message import Message

from imp_service.api import options
from imp_service.api.float32 import shortest
from imp_service.api.resume import Origin, Resume, ResumedSequence
from imp_service.pb import inference_pb2, types_pb2
from imp_service.rpc.durations import is_valid, seconds_of
from imp_service.tables import LIMITS
from imp_service.text import ConstraintKind, ConstraintSpec

T = TypeVar("T")
Reader = Callable[[Any], Any]


def read_options(kind: type[T], message: Message, **others: Any) -> T:
    """The fields that are set, and `others`, which no message has. An unset field has the default of the class."""
    kinds: Any = (kind, type(message))
    readers = _readers(*kinds)
    names = readers.keys() - others.keys()
    found = {field.name: readers[field.name](value) for field, value in message.ListFields() if field.name in names}
    return kind(**others, **found)


def read_constraint(constraint: types_pb2.Constraint) -> ConstraintSpec | None:
    """The constraint on the output; None if the message has none."""
    name = constraint.WhichOneof("kind")
    if name is None:
        return None
    kind, any_spaces = ConstraintKind(name), constraint.unbounded_whitespace
    match kind:
        case ConstraintKind.CHOICES:
            return ConstraintSpec(kind, choices=tuple(constraint.choices.values))
        case ConstraintKind.JSON_OBJECT:
            return ConstraintSpec(kind, unbounded_whitespace=any_spaces)
    return ConstraintSpec(kind, source=getattr(constraint, name), unbounded_whitespace=any_spaces)


def read_resume(resume: inference_pb2.Resume) -> Resume:
    """What came of a stream. Token ids are not copied, since there may be many."""
    sequences = [ResumedSequence(each.token_ids, each.finished) for each in resume.sequences]
    return Resume(read_origin(resume.origin), sequences)


def read_origin(origin: inference_pb2.Origin) -> Origin:
    """Where a stream or a session began."""
    return Origin(origin.server, origin.request, origin.seed, origin.created)


@cache
def _readers(kind: type, message: type[Message]) -> Mapping[str, Reader]:
    known = message.DESCRIPTOR.fields_by_name
    return {each.name: _reader(known[each.name]) for each in fields(kind) if each.name in known}


def _reader(field: Any) -> Reader:
    if field.message_type is not None:
        return _message_reader(field.message_type)
    if field.is_repeated:
        return tuple
    if field.enum_type is not None:
        return lambda value: _word(field.enum_type, value)
    return shortest if field.cpp_type == FieldDescriptor.CPPTYPE_FLOAT else _unchanged


def _message_reader(message: Any) -> Reader:
    if message.GetOptions().map_entry:
        return _biases
    if message is Duration.DESCRIPTOR:
        return _seconds
    if message is types_pb2.Constraint.DESCRIPTOR:
        return read_constraint
    if message is inference_pb2.Resume.DESCRIPTOR:
        return read_resume
    if message is inference_pb2.Origin.DESCRIPTOR:
        return read_origin
    kind = getattr(options, message.name)
    return lambda value: read_options(kind, value)


def _unchanged(value: Any) -> Any:
    return value


def _biases(values: Mapping[int, float]) -> Mapping[int, float]:
    """More than a request may have are only counted."""
    if len(values) > LIMITS.logit_biases:
        return values
    return {token: shortest(bias) for token, bias in values.items()}


def _seconds(value: Duration) -> float:
    """Not a number if it is no duration, so that no range has it."""
    return seconds_of(value) if is_valid(value) else float("nan")


def _word(enum: Any, number: int) -> str | int | None:
    """The value of an enum as the library names it; None for its unset value, and the number if it has no name."""
    value = enum.values_by_number.get(number)
    if value is None:
        return number
    prefix = enum.values_by_number[0].name.removesuffix("UNSPECIFIED")
    return None if number == 0 else str(value.name).removeprefix(prefix).lower()
