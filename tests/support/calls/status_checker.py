"""Checks the status of a call: a row of the error table with readable details, or a status of gRPC itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

import grpc

from support.calls.error_rows import documented_rows
from support.calls.status_details import read_details

# Tests put it into prompts; it must never appear in a status or a log line.
SECRET = "xyzzy-plugh-4711"
# Codes that gRPC itself or the client's library sets, with their messages.
GRPCS_OWN = {
    "CANCELLED": r"",
    "DEADLINE_EXCEEDED": r"",
    "UNAVAILABLE": r"(?i)connect|socket|stream|goaway|endpoint|transport|reset|broken pipe|ping|closed|dns|handshak",
    "RESOURCE_EXHAUSTED": r"(?i)larger than max|metadata size",
    "UNIMPLEMENTED": r"(?i)method not found|not implement",
    "INTERNAL": r"(?i)deserializing|RST_STREAM|HTTP2|HTTP/2",
}
# Codes that a client sets itself, with its messages. If the server's status is in flight then, a client keeps the
# server's details with its own code.
CLIENTS_OWN = {"CANCELLED": r"(?s).*", "DEADLINE_EXCEEDED": r"(?i)(stream removed \()?deadline exceeded\)?"}
# Texts that reveal the server's internals.
LEAKS = re.compile(r"0x[0-9a-f]{6,}|Traceback|\.py\b|(?<![\w.:/])/(?:home|tmp|usr|work|var|etc|root|proc)/[\w.-]+")


class StatusViolation(AssertionError):
    """A call ended with a status that the API does not allow."""


@cache
def codes_by_reason() -> dict[str, str]:
    """Returns the code of each reason in the error table of docs/contracts.md."""
    return {row.reason: row.code for row in documented_rows() if row.reason}


def leaks_in(text: str) -> list[str]:
    """Returns the texts in a message that a client must not see."""
    return [SECRET] * (SECRET in text) + LEAKS.findall(text)


def check_status(code: grpc.StatusCode | None, words: str | None, trailing: Iterable[tuple[str, str | bytes]]) -> None:
    """Raises StatusViolation if the status of a call breaks a rule of the API."""
    if code is None or code is grpc.StatusCode.UNKNOWN:
        raise StatusViolation(f"status {code}: {words}")
    told, pairs = words or "", [(key, value) for key, value in trailing]
    if code is grpc.StatusCode.OK or re.fullmatch(CLIENTS_OWN.get(code.name, r"(?!)"), told):
        return
    details = read_details(pairs)
    if not details.code:
        if not re.search(GRPCS_OWN.get(code.name, r"(?!)"), told):
            raise StatusViolation(f"{code.name} without details: {told}")
        return
    expected = codes_by_reason().get(details.reason)
    if expected != code.name or details.domain != "imp.v1":
        raise StatusViolation(f"{code.name} {details.domain} {details.reason}: {told}; the table says {expected}")
    if (details.code, details.message) != (code.value[0], told):
        raise StatusViolation(f"details say {details.code} {details.message!r}, the status {code.value[0]} {told!r}")
    leaked = leaks_in(" ".join([told, *(str(value) for _, value in pairs)]))
    if leaked:
        raise StatusViolation(f"{code.name} {details.reason} tells {leaked}: {told}")
