"""The metadata of a call: priority, tenant, trace, and what its caller does if it breaks. Other keys are ignored.

gRPC refuses metadata beyond `limits.max_metadata_bytes`. It counts 32 bytes for each key, so that limits their number.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from imp_service.api.errors import Violation, refuse
from imp_service.generation.limits import BOUNDS
from imp_service.tables import LIMITS

PRIORITY_KEY, TENANT_KEY, RESUMES_KEY, ACKNOWLEDGE_KEY = "imp-priority", "imp-tenant", "imp-resumes", "imp-acknowledge"
# https://www.w3.org/TR/trace-context/
MAX_TRACESTATE_BYTES = 512

_INTEGER = re.compile(r"-?[0-9]{1,9}")
_TENANT = re.compile(rf"[\x21-\x7E]{{1,{LIMITS.tenant_bytes}}}")
_TRACEPARENT = re.compile(r"(?!ff)([0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}(-.*)?")
_TRACESTATE = re.compile(rf"[\x20-\x7E]{{1,{MAX_TRACESTATE_BYTES}}}")


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """Fields are empty if the call does not set them; those of a trace also if they are malformed."""

    priority: int = 0
    tenant: str = ""
    traceparent: str = ""
    tracestate: str = ""
    # The caller goes on with another server if this one drains.
    resumes: bool = False
    # The caller wants to know at once that a server has the call.
    acknowledge: bool = False


def read_request_metadata(pairs: Iterable[tuple[str, str | bytes]]) -> RequestMetadata:
    """Raises FieldsInvalid, with the keys as paths."""
    found: dict[str, list[str]] = {
        PRIORITY_KEY: [],
        TENANT_KEY: [],
        RESUMES_KEY: [],
        ACKNOWLEDGE_KEY: [],
        "traceparent": [],
        "tracestate": [],
    }
    for key, value in pairs:
        if key in found:
            found[key].append(value if isinstance(value, str) else value.decode("latin-1"))
    priorities, tenants = found[PRIORITY_KEY], found[TENANT_KEY]
    flags = [each for key in (RESUMES_KEY, ACKNOWLEDGE_KEY) for each in _flag_violations(key, found[key])]
    refuse([*_priority_violations(priorities), *_tenant_violations(tenants), *flags])
    traceparent = _traceparent(found["traceparent"])
    tracestate = ",".join(found["tracestate"])
    return RequestMetadata(
        priority=int(priorities[0]) if priorities else 0,
        tenant=tenants[0] if tenants else "",
        traceparent=traceparent,
        tracestate=tracestate if traceparent and _TRACESTATE.fullmatch(tracestate) else "",
        resumes=bool(found[RESUMES_KEY]),
        acknowledge=bool(found[ACKNOWLEDGE_KEY]),
    )


def _priority_violations(values: list[str]) -> Iterator[Violation]:
    if len(values) > 1:
        yield Violation(PRIORITY_KEY, "given twice")
    elif values and not _INTEGER.fullmatch(values[0]):
        yield Violation(PRIORITY_KEY, "expected a whole number")
    elif values:
        yield from BOUNDS["priority"].check(PRIORITY_KEY, int(values[0]))


def _tenant_violations(values: list[str]) -> Iterator[Violation]:
    if len(values) > 1:
        yield Violation(TENANT_KEY, "given twice")
    elif values and not _TENANT.fullmatch(values[0]):
        yield Violation(TENANT_KEY, f"expected 1 to {LIMITS.tenant_bytes} printable characters of ASCII, no space")


def _flag_violations(key: str, values: list[str]) -> Iterator[Violation]:
    if len(values) > 1:
        yield Violation(key, "given twice")
    elif values and values[0] != "1":
        yield Violation(key, "expected 1")


def _traceparent(values: list[str]) -> str:
    """The header if it is well formed, else empty. Version 00 has exactly four parts, later versions may have more."""
    match = _TRACEPARENT.fullmatch(values[0]) if len(values) == 1 else None
    return "" if match is None or (match[1] == "00" and match[2]) else values[0]
