"""Reads the fields of a request's body by a table, and collects everything that is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from difflib import get_close_matches
from typing import Any, TypeVar

from imp_service.api.errors import FieldsInvalid, Violation
from imp_service.api.rules import Missing
from imp_service.http_api.requests.rows import Accepted, Ignored, Means, Refused, Sets, Table
from imp_service.http_api.requests.values import REMEDY, WrongValue, ignored_in, shown
from imp_service.serving.refusal import Refusal
from imp_service.serving.rules.check import Finding, refuse_findings, renamed

T = TypeVar("T")
MAX_NAME = 64
# A search for the nearest name takes a third of a millisecond.
MAX_HINTS = 8


class UnknownFields(FieldsInvalid):
    """Raised if the body has fields that no table knows."""


class Reading:
    """The fields of one body that are set and of the right kind, by the caller's names.

    A null is an unset field, also if no table knows it: clients send fields that they do not use as nulls.
    """

    def __init__(self, body: Mapping[str, Any], table: Table, *, ignores_unknown: bool) -> None:
        self.values: dict[str, Any] = {}
        self.violations: list[Violation] = []
        # Fields, members and values that were ignored: those without effect here, and as the settings say unknown ones.
        self.ignored: list[str] = []
        self._unknown: list[Violation] = []
        self._refusals: list[Missing | Refusal] = []
        # Option -> the caller's name of the field that set it.
        self._names: dict[str, str] = {}
        # Field -> the caller's name of it, which may be that of another server.
        self._spelled: dict[str, str] = {}
        self._table = table
        self._ignores_unknown = ignores_unknown
        for name, value in body.items():
            if value is None:
                continue
            if name in table:
                self._take(name, value)
            else:
                self._take_unknown(name, name, _with_effect(table))

    def options(self, group: str) -> dict[str, Any]:
        """The options of imp that the fields set, of one group such as `sampling`."""
        found = {}
        for name, value in self.values.items():
            row = self._table[name]
            option = row.option if isinstance(row, Sets) else ""
            own_group, _, own_name = option.rpartition(".")
            if own_group == group:
                found[own_name] = value
        return found

    def get(self, name: str, default: Any = None) -> Any:
        """The value of a field, or `default` if it is unset."""
        return self.values.get(name, default)

    def spelled(self, name: str) -> str:
        """The caller's name of a field."""
        return self._spelled.get(name, name)

    def wrong(self, path: str, message: str) -> None:
        """Adds a violation. `path` begins with the caller's name of a field."""
        self.violations.append(Violation(path, message))

    def require(self, name: str) -> None:
        """A field that must be set. One that is of the wrong kind has a violation already."""
        if name not in self.values and not any(_is_in(name, each.path) for each in self.violations):
            self.wrong(name, "not set")

    def read(self, name: str, read: Callable[[Any], T], default: T, *, ignores_unknown: bool = False) -> T:
        """The field read further by `read`, which raises WrongValue. `default` if it is unset or wrong.

        `ignores_unknown`: its unknown members are ignored whatever the settings say.
        """
        if name not in self.values:
            return default
        try:
            with ignored_in(name, self.ignored, unknown=ignores_unknown or self._ignores_unknown):
                return read(self.values[name])
        except WrongValue as mismatch:
            self.wrong(f"{name}{mismatch.where}", mismatch.message)
            # Its limits are not checked: they would be those of `default`.
            del self.values[name]
            return default

    def check_members(self, path: str, value: Mapping[str, Any], known: Collection[str]) -> None:
        """Refuses or ignores, as the settings say, the members that are not known. `path` is that of the object."""
        for name, each in value.items():
            if each is not None and name not in known:
                self._take_unknown(f"{path}.{name}", name, known)

    def set_by(self, option: str, name: str) -> None:
        """Names the field that set an option, if the table does not."""
        self._names.setdefault(option, name)

    def set_prompt_by(self, name: str) -> None:
        """Names the field that is the prompt, for errors about it as a whole."""
        for option in ("prompt", "text", "chat"):
            self.set_by(option, name)

    def caller_path(self, path: str) -> str:
        """The caller's path of an option's path: `temperature` of `sampling.temperature`."""
        for end in range(len(path), 0, -1):
            if (end == len(path) or path[end] in ".[") and path[:end] in self._names:
                return self._names[path[:end]] + path[end:]
        return path

    def add(self, findings: Iterable[Finding]) -> None:
        """Adds what is wrong with options, under the caller's names."""
        for each in findings:
            found = renamed(each, self.caller_path)
            if isinstance(found, Violation):
                self.violations.append(found)
            else:
                self._refusals.append(found)

    def refuse(self) -> None:
        """Raises an error that names every violation, if there is one."""
        if self._unknown and not self.violations:
            raise UnknownFields(self._unknown)
        refuse_findings([*self.violations, *self._unknown, *self._refusals])

    def has(self, field: str) -> bool:
        """Whether the table has a row for the field."""
        return field in self._table

    def also(self, name: str, field: str, value: object) -> None:
        """Sets a field by a member of another one, whose path is `name`."""
        self._set(field, value, name)

    def _take(self, name: str, value: object) -> None:
        row = self._table[name]
        if isinstance(row, Refused):
            if value not in ([], {}, ""):
                self.wrong(name, f"not supported: {row.instead}")
            return
        if isinstance(row, Ignored):
            self.ignored.append(name)
            return
        try:
            with ignored_in(name, self.ignored, unknown=self._ignores_unknown):
                read = row.kind(value)
        except WrongValue as mismatch:
            why = f" ({row.about})" if isinstance(row, Accepted) else ""
            self.wrong(f"{name}{mismatch.where}", f"{mismatch.message}{why}")
            return
        if read is not None:
            self._set(row.of if isinstance(row, Means) else name, read, name)

    def _set(self, field: str, value: object, name: str) -> None:
        """Sets a field that the caller calls `name`."""
        if self.values.get(field, value) != value:
            before = self.spelled(field)
            given, other = (shown(each) for each in (value, self.values[field]))
            self.wrong(name, f"means {field} = {given}, expected the value of {before}, {other}")
            return
        self.values[field] = value
        self._spelled[field] = name
        row = self._table[field]
        if isinstance(row, Sets) and row.option:
            self._names[row.option] = name

    def _take_unknown(self, path: str, name: str, known: Collection[str]) -> None:
        if self._ignores_unknown:
            self.ignored.append(path)
            return
        is_hinted = len(self._unknown) < MAX_HINTS
        close = get_close_matches(name[:MAX_NAME], known, n=1) if is_hinted else ()
        hint = f", did you mean {close[0]}?" if close else ""
        remedy = "" if self._unknown else f" ({REMEDY})"
        self._unknown.append(Violation(path, f"unknown field{hint}{remedy}"))


def _with_effect(table: Table) -> list[str]:
    """The fields to propose in place of an unknown one: not those that are refused or do nothing."""
    return [name for name, row in table.items() if isinstance(row, Sets | Means)]


def _is_in(name: str, path: str) -> bool:
    """Whether a path is that of a field or of a part of it."""
    return path == name or path.startswith((f"{name}.", f"{name}["))
