"""Ids at or above n_tokens are no tokens: the engine refuses them in every command."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from imp_service import _core
from support.script_engine import Sampler, ScriptEngine

ROWS, N = 70, 40


def mask(*tokens: int) -> bytes:
    return sum(1 << token for token in tokens).to_bytes((ROWS + 7) // 8, "little")


@pytest.mark.parametrize("token", [N, N + 1, 63, 64, ROWS - 1])
def test_gen_29_the_door_takes_no_padding(token: int) -> None:
    engine = ScriptEngine(script={"vocab_size": ROWS}, n_tokens=N)
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
        assert raised.value.reason == "FIELD_INVALID" and str(N) in raised.value.message
    assert engine.step(session, [3], allowed=mask(N - 1)) == N - 1, "the last token is one"
    engine.assert_at_rest(live=engine.core.stats().blocks_live)


def test_gen_29_without_the_number_every_row_is_a_token() -> None:
    engine = ScriptEngine(script={"vocab_size": ROWS})
    assert engine.step(engine.open(), [ROWS - 1], allowed=mask(ROWS - 1)) == ROWS - 1
    for wrong in (-1, ROWS + 1):
        with pytest.raises(_core.InvalidArgument, match="n_tokens"):
            ScriptEngine(script={"vocab_size": ROWS}, n_tokens=wrong)
