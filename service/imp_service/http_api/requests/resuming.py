"""The field `resume`: a caller's wish for marks, and what it has of an answer whose stream broke."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from imp_service.api.resume import Origin, Resume, ResumedSequence
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.values import (
    ReadValue,
    WrongValue,
    entries,
    expected,
    flag,
    members,
    read_members,
    shown,
    text,
    token_ids,
    whole,
    within,
)

FIELD = "resume"
# More characters than an answer's id has: the caller's x-request-id and 16 digits follow a prefix.
MAX_ID = 256
_ID = re.compile(rf"[\x21-\x7E]{{1,{MAX_ID}}}")
# As many digits as a seed of 64 bits has.
_SEED = re.compile(r"[0-9]{1,20}")


@dataclass(frozen=True, slots=True)
class Resuming:
    """A caller that can resume: its answer has marks. With `resume` it goes on with an earlier answer."""

    resume: Resume | None = None
    # The `id` of the earlier answer, and when it was created.
    id: str = ""
    created: int = 0

    def with_sequences(self, n: int) -> Resume | None:
        """What came of n sequences. A caller knows only those of which something came."""
        if self.resume is None:
            return None
        given = self.resume.sequences
        return replace(self.resume, sequences=(*given, *[ResumedSequence()] * (n - len(given))))


def read_resuming(value: Any) -> Resuming:
    """The value of the field. An empty object asks only for marks."""
    if not members(value):
        return Resuming()
    found = _all_members(value, PARTS)
    return Resuming(Resume(found["origin"], found["sequences"]), found["id"], found["created"])


def check_resuming(reading: Reading, prefix: str, n_prompts: int) -> Resuming | None:
    """The field, if it is set. What is wrong with it in this request is added to the reading.

    `prefix`: of the ids of this path's answers.
    """
    found: Resuming | None = reading.get(FIELD)
    if found is None or found.resume is None:
        return found
    if not reading.get("stream", False):
        reading.wrong(FIELD, "set, expected only with stream: true")
    if n_prompts > 1:
        reading.wrong(FIELD, f"set with {n_prompts} prompts, expected one")
    if not found.id.startswith(prefix):
        reading.wrong(f"{FIELD}.id", f"{shown(found.id)}, expected an id that begins with {prefix}")
    return found


def _all_members(value: Any, readers: Mapping[str, ReadValue], optional: Mapping[str, ReadValue] | None = None) -> Any:
    """The members of an object. All but the optional ones must be set."""
    found = read_members(value, {**readers, **(optional or {})})
    for name in readers:
        if name not in found:
            raise WrongValue("not set", f".{name}")
    return found


def _origin(value: Any) -> Origin:
    return Origin(**_all_members(value, ORIGIN))


def _seed(value: Any) -> int:
    """A number as text: JSON's own numbers lose the last of 64 bits in many clients."""
    if not _SEED.fullmatch(text(value)):
        raise expected("a number of 64 bits as a string", value)
    return int(value)


def _time(value: Any) -> int:
    if not 0 <= whole(value) < 2**53:
        raise expected("a time in seconds since 1970", value)
    return int(value)


def _id(value: Any) -> str:
    if not _ID.fullmatch(text(value)):
        raise expected("the id of an answer", value)
    return str(value)


def _sequences(value: Any) -> tuple[ResumedSequence, ...]:
    return tuple(within(f"[{i}]", _sequence, each) for i, each in enumerate(entries(value)))


def _sequence(value: Any) -> ResumedSequence:
    found = _all_members(value, {"token_ids": token_ids}, {"chunks": token_ids, "finished": flag})
    # Tokens came alone if nothing else is said.
    return ResumedSequence(**{"chunks": (1,) * len(found["token_ids"]), **found})


ORIGIN: Mapping[str, ReadValue] = {"server": text, "request": text, "seed": _seed, "created": _time}
PARTS: Mapping[str, ReadValue] = {"origin": _origin, "id": _id, "created": _time, "sequences": _sequences}
