"""The core accepts integers in any container as token ids and masks, copies them, and refuses all else, padding too."""

from __future__ import annotations

import datetime
import decimal
import fractions
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from imp_service import _core, _testing
from support.engine.model_engine import collect_from
from support.engine.script_engine import Sampler, ScriptEngine

N = _core.RunLimits(max_outputs=2)


class Subclass(np.ndarray):
    """A subclass of NumPy's array."""


IDS = np.array([3, 5, 7, 9], np.int64)
READ_ONLY = IDS.copy()
READ_ONLY.flags.writeable = False
ACCEPTED: dict[str, Any] = {
    **{f"array of {kind}": IDS.astype(kind) for kind in ("i1", "u1", "i4", "u4", ">i4", "u8", "O")},
    "negative stride": IDS[::-1],
    "every other": IDS[::2],
    "read-only": READ_ONLY,
    "broadcast": np.broadcast_to(np.int32(4), (3,)),
    "subclass": IDS.view(Subclass),
    "range": range(3, 6),
    "tuple of NumPy's": tuple(IDS),
    "column of a matrix": np.arange(12, dtype=np.int32).reshape(3, 4)[:, 1],
}
REFUSED: dict[str, Any] = {
    **{f"array of {kind}": IDS.astype(kind) for kind in ("f2", "f4", "f8", "c8", "?", "U1", "S1", "m8[s]", "M8[D]")},
    "structured": np.zeros(2, [("a", "i4")]),
    "no dimensions": np.array(3),
    "two dimensions": IDS.reshape(2, 2),
    "masked": np.ma.array(IDS, mask=[0, 1, 0, 0]),
    "beyond 32 bits": np.array([2**40]),
    "least of 64 bits": np.array([-(2**63)]),
    "most of 64 bits": np.array([2**64 - 1], np.uint64),
    "beyond all": [10**30],
    "None": None,
    "None inside": [1, None],
    "nested": [[1], [2]],
    "float": [1.0],
    "decimal": [decimal.Decimal("1.5")],
    "fraction": [fractions.Fraction(3, 2)],
    "NumPy's float": [np.float32(1.5)],
    "text": "12",
    "texts": ["1", "2"],
    "bytes": b"12",
    "set": {1, 2},
    "dictionary": {1: 2},
    "iterator": iter([1, 2]),
    "date": [datetime.date.min],
}


@pytest.fixture
def engine() -> Iterator[Any]:
    script = _testing.Script("hash", vocab_size=16)
    yield _testing.ThreadedEngine(script, _core.EngineOptions(n_blocks=64, max_context=256, max_running=8))


def outputs(engine: Any, ticket: int, tokens: Any) -> list[int]:
    engine.generate(ticket, ticket, tokens, limits=_core.RunLimits(max_outputs=4), bypass_prefix=True)
    return [event.token for event in collect_from(engine, ticket) if isinstance(event, _core.TokenEvent)]


@pytest.mark.parametrize("name", ACCEPTED)
def test_y21_whole_numbers_are_taken_as_they_are(engine: Any, name: str) -> None:
    given = ACCEPTED[name]
    expected = outputs(engine, 1, [int(token) for token in given])
    assert len(expected) == 4 and outputs(engine, 2, given) == expected


@pytest.mark.parametrize("name", REFUSED)
def test_y21_anything_else_is_a_type_error_and_changes_nothing(engine: Any, name: str) -> None:
    given = REFUSED[name]
    calls: list[Callable[[], object]] = [
        lambda: engine.generate(1, 1, given),
        lambda: engine.run(1, 1, given),
        lambda: engine.generate(1, 1, [1], siblings=given),
        lambda: _core.RunLimits(stop_tokens=given),
        lambda: _core.RunLimits(eos_tokens=given),
        lambda: _core.SamplingOptions(dry_breakers=given),
    ]
    # A sequence's id has 64 bits.
    fits_an_id = name in ("beyond 32 bits", "most of 64 bits")
    for call in calls[:2] + calls[3:] if fits_an_id else calls:
        with pytest.raises(TypeError):
            call()
    stats = engine.stats()
    assert (stats.queued, stats.waiting, stats.sessions) == (0, 0, 0)


@pytest.mark.parametrize("mask", [None, "1", 1, [1], bytearray(b"1"), memoryview(b"1"), np.zeros(2, np.uint8)])
def test_y21_a_mask_is_bytes_that_nobody_can_change(engine: Any, mask: Any) -> None:
    engine.open(1)
    with pytest.raises(TypeError):
        engine.run(1, 1, [1], allowed=mask)
    with pytest.raises(TypeError):
        engine.mask(1, 1, 0, mask)
    with pytest.raises(_core.InvalidArgument):
        engine.run(1, 1, [1], allowed=bytes(1000))


def test_y21_an_array_may_be_changed_once_it_is_handed_over(engine: Any) -> None:
    """The core copies the array before the call returns, so later writes of other threads have no effect."""
    tokens = IDS.copy()
    expected = outputs(engine, 1, list(tokens))
    with_copies = []
    engine.hold()
    for ticket in range(2, 6):
        tokens[:] = IDS
        engine.generate(ticket, ticket, tokens, limits=_core.RunLimits(max_outputs=4), bypass_prefix=True)
        tokens[:] = 1
        with_copies.append(ticket)
    engine.release()
    told = collect_from(engine, *with_copies)
    for ticket in with_copies:
        assert [e.token for e in told if isinstance(e, _core.TokenEvent) and e.ticket == ticket] == expected


def test_y21_reported_rows_are_the_callers_own(engine: Any) -> None:
    engine.generate(1, 1, [1, 2], limits=N, returns=_core.RunReturns(logits=True))
    rows = [event.logits for event in collect_from(engine, 1) if isinstance(event, _core.TokenEvent)]
    assert all(row.dtype == np.float32 and row.flags.owndata and row.flags.writeable for row in rows) and len(rows) == 2
    before = rows[1].copy()
    rows[0][:] = 0
    assert np.array_equal(rows[1], before)


ROWS, N_TOKENS = 70, 40


def mask(*tokens: int) -> bytes:
    return sum(1 << token for token in tokens).to_bytes((ROWS + 7) // 8, "little")


@pytest.mark.parametrize("token", [N_TOKENS, N_TOKENS + 1, 63, 64, ROWS - 1])
def test_gen_29_the_door_takes_no_padding(token: int) -> None:
    engine = ScriptEngine(script={"vocab_size": ROWS}, n_tokens=N_TOKENS)
    session = engine.open()
    engine.step(session, [1, 2])
    bias = Sampler(logit_bias={token: 1.0})
    calls: list[Callable[[], object]] = [
        lambda: engine.run(session, [token]),
        lambda: engine.generate([1, token]),
        lambda: engine.generate([1], stop_tokens=[token]),
        lambda: engine.generate([1], eos_tokens=[token]),
        lambda: engine.generate([1], sampling=bias),
        lambda: engine.run(session, [1], sampling=bias),
        lambda: engine.open(sampling=bias),
        lambda: engine.run(session, [1], allowed=mask(3, token)),
    ]
    for call in calls:
        with pytest.raises(_core.InvalidArgument) as raised:
            call()
        assert raised.value.reason == "FIELD_INVALID" and str(N_TOKENS) in raised.value.message
    assert engine.step(session, [3], allowed=mask(N_TOKENS - 1)) == N_TOKENS - 1, "the last token is one"
    engine.assert_at_rest(live=engine.core.stats().blocks_live)


def test_gen_29_without_the_number_every_row_is_a_token() -> None:
    engine = ScriptEngine(script={"vocab_size": ROWS})
    assert engine.step(engine.open(), [ROWS - 1], allowed=mask(ROWS - 1)) == ROWS - 1
    for wrong in (-1, ROWS + 1):
        with pytest.raises(_core.InvalidArgument, match="n_tokens"):
            ScriptEngine(script={"vocab_size": ROWS}, n_tokens=wrong)
