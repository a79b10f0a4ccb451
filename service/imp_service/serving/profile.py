"""A profile of the engine: steps with every op in them, as a Chrome trace and as a table of each op's share of time."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

from imp_service.core import EngineClient, Error, ProfileEvent
from imp_service.serving.engine_events import engine_answer

# Smaller than the minimum of limits.max_message_bytes.
PIECE_BYTES = 32 * 1024
US = 1e-3
# Steps and the ops in them nest on one track.
TRACK = {"pid": 1, "tid": 1}


@dataclass(frozen=True, slots=True)
class OpShare:
    """One op or kernel over all steps, and its share of the time of all ops."""

    name: str
    total_ms: float
    share: float
    mean_us: float
    count: int


async def record(client: EngineClient, n_steps: int, seconds: float) -> ProfileEvent:
    """Records the next `n_steps` steps of the engine, or those of the next `seconds`. One profile at a time."""

    def end() -> None:
        with suppress(Error):
            client.engine.profile(0, 0)

    limit = asyncio.get_running_loop().call_later(seconds, end)
    try:
        event = await engine_answer(client, lambda ticket: client.engine.profile(ticket, n_steps))
    except asyncio.CancelledError:
        end()
        raise
    finally:
        limit.cancel()
    assert isinstance(event, ProfileEvent)  # narrows
    return event


def op_shares(profile: ProfileEvent) -> list[OpShare]:
    """The ops by their total time, the longest first."""
    names, which, begin, end = profile.ops()
    totals, counts = [0] * len(names), [0] * len(names)
    for op, ns in zip(which.tolist(), (end - begin).tolist(), strict=True):
        totals[op] += ns
        counts[op] += 1
    whole = sum(totals) or 1
    shares = [
        OpShare(name, total * 1e-6, total / whole, total * US / count, count)
        for name, total, count in zip(names, totals, counts, strict=True)
    ]
    return sorted(shares, key=lambda share: -share.total_ms)


def summary(profile: ProfileEvent) -> dict[str, Any]:
    """The profile in numbers. It contains no token and no text."""
    steps = profile.steps
    seconds = sum(step.whole.end_ns - step.whole.begin_ns for step in steps) * 1e-9
    n_decoded = sum(step.n_decode_rows for step in steps)
    n_prefilled = sum(step.n_prefill_rows for step in steps)
    return {
        "steps": len(steps),
        "seconds": seconds,
        "decoded_tokens": n_decoded,
        "prefilled_tokens": n_prefilled,
        "tokens_per_second": (n_decoded + n_prefilled) / seconds if seconds else 0.0,
        "operations": [asdict(share) for share in op_shares(profile)],
        "operations_without_room": profile.n_dropped_ops,
    }


def chrome_trace(profile: ProfileEvent) -> Iterator[bytes]:
    """The bytes of a JSON trace that chrome://tracing and Perfetto load, in pieces."""
    origin = profile.steps[0].whole.begin_ns if profile.steps else 0
    name = {"ph": "M", "name": "thread_name", **TRACK, "args": {"name": "engine: steps, and the ops in them"}}
    events = chain([name], _step_events(profile, origin), _op_events(profile, origin))
    texts = (json.dumps(event, separators=(",", ":")) for event in events)
    head, tail = '{"displayTimeUnit":"ms","traceEvents":[', f'],"otherData":{json.dumps(summary(profile))}}}'
    return _pieces(chain([head, next(texts)], (f",\n{text}" for text in texts), [tail]))


def _step_events(profile: ProfileEvent, origin: int) -> Iterator[dict[str, Any]]:
    for number, step in enumerate(profile.steps):
        rows = {"step": number, "decode_rows": step.n_decode_rows, "prefill_rows": step.n_prefill_rows}
        yield _slice("step", step.whole.begin_ns, step.whole.end_ns, origin, rows)
        for name, part in (("forward", step.forward), ("sample", step.sample)):
            if part.end_ns:
                yield _slice(name, part.begin_ns, part.end_ns, origin, {})


def _op_events(profile: ProfileEvent, origin: int) -> Iterator[dict[str, Any]]:
    names, which, begin, end = profile.ops()
    for op, begin_ns, end_ns in zip(which.tolist(), begin.tolist(), end.tolist(), strict=True):
        yield _slice(names[op], begin_ns, end_ns, origin, {})


def _slice(name: str, begin_ns: int, end_ns: int, origin: int, args: dict[str, int]) -> dict[str, Any]:
    span = {"ts": round((begin_ns - origin) * US, 3), "dur": round((end_ns - begin_ns) * US, 3)}
    return {"ph": "X", "name": name, **TRACK, **span, **({"args": args} if args else {})}


def _pieces(texts: Iterator[str]) -> Iterator[bytes]:
    waiting: list[str] = []
    size = 0
    for text in texts:
        waiting.append(text)
        size += len(text)  # ASCII
        if size >= PIECE_BYTES:
            yield "".join(waiting).encode()
            waiting, size = [], 0
    if waiting:
        yield "".join(waiting).encode()
