"""Every penalty in every way to sample: each token equals the sampler's definition applied to the same logits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.generations import Output, in_one, streamed, vocabulary
from support.calls.session_calls import SessionCalls
from support.oracles import sampling_oracle
from support.oracles.script_oracle import uniform
from support.servers.served import Served, ask, serve

Fields = dict[str, Any]
TEMPERATURE, SEED, N_TOKENS = 1.0, 11, 20
# Longer than a block, so that a second request finds it cached. It contains tokens that are drawn later.
PROMPT = [300 + 11 * i % 90 for i in range(36)] + [301, 303, 301]
# Sampling chooses among a few tokens: penalized tokens come soon and often.
FEW = dict.fromkeys(range(300, 306), 100.0)
BREAKER = 303
PENALTIES: dict[str, Fields] = {
    "repetition": {"repetition_penalty": 1.5},
    "repetition that rewards": {"repetition_penalty": 0.3},
    "frequency": {"frequency_penalty": 0.7},
    "presence": {"presence_penalty": 1.4},
    "window": {"repetition_penalty": 1.3, "frequency_penalty": 0.9, "presence_penalty": -0.5, "penalty_window": 4},
    "dry": {"dry_multiplier": 0.9, "dry_base": 1.4, "dry_allowed_length": 1},
    "dry with breakers": {"dry_multiplier": 1.2, "dry_allowed_length": 1, "dry_window": 30, "dry_breakers": [BREAKER]},
}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve("model.overrides.default_sampling.top_p=1", "model.overrides.default_sampling.top_k=0") as server:
        yield server


def options(penalty: Fields) -> types_pb2.SamplingOptions:
    """Returns the options of a request."""
    plain = {name: value for name, value in penalty.items() if not name.startswith("dry_")}
    dry = {name.removeprefix("dry_"): value for name, value in penalty.items() if name not in plain}
    if "breakers" in dry:
        dry["breakers"] = [vocabulary().decode(dry["breakers"])]
    dry_options = types_pb2.DryOptions(**dry) if dry else None
    return types_pb2.SamplingOptions(temperature=TEMPERATURE, seed=SEED, logit_bias=FEW, dry=dry_options, **plain)


class Reference:
    """The definition, applied to the logits of a session that is given each token and samples none."""

    def __init__(self, calls: SessionCalls) -> None:
        self._calls = calls
        self._logits: dict[tuple[int, ...], list[np.ndarray]] = {}

    def tokens(self, given: Sequence[int], penalty: Fields, sequence: int = 0) -> list[int]:
        """Returns for each place of `given` the token that the definition draws after all tokens before it."""
        key = tuple(given)
        if key not in self._logits:
            self._logits[key] = self._rows(given)
        return [self._token(row, given[:i], penalty, sequence) for i, row in enumerate(self._logits[key])]

    def _rows(self, given: Sequence[int]) -> list[np.ndarray]:
        only_logits = pb.StepOptions(sample=False, logits=True)
        opened = self._calls.prefill(PROMPT, step=only_logits)
        outputs = [opened.output]
        outputs += [self._calls.step(opened.session_id, [token], step=only_logits) for token in given[:-1]]
        self._calls.release(opened.session_id)
        return [np.frombuffer(output.logits, "<f4") for output in outputs]

    @staticmethod
    def _token(row: np.ndarray, before: Sequence[int], penalty: Fields, sequence: int) -> int:
        said = {"history": [*PROMPT, *before], "n_output": len(before), "logit_bias": FEW}
        if "dry_breakers" in penalty:
            text = vocabulary().token_bytes(BREAKER)
            ids = range(vocabulary().vocab_size)
            penalty = {**penalty, "dry_breakers": [i for i in ids if text in vocabulary().token_bytes(i)]}
        logits = sampling_oracle.adjusted(row, {**penalty, **said})
        weights = sampling_oracle.integer_weights(logits, TEMPERATURE)
        return sampling_oracle.draw(range(len(row)), weights, uniform(SEED, sequence, len(before)))


def request(penalty: Fields, **fields: Any) -> pb.GenerateRequest:
    stop = types_pb2.StopOptions(max_tokens=N_TOKENS, ignore_eos=True)
    return ask(PROMPT, None, sampling=options(penalty), stop=stop, **fields)


def generated(calls: SessionCalls, penalty: Fields) -> list[int]:
    result = streamed(calls.served, request(penalty, cache=types_pb2.CacheOptions(bypass_prefix=True)))
    assert result.started.cached_prompt_tokens == 0
    return result.output.ids


def cached(calls: SessionCalls, penalty: Fields) -> list[int]:
    streamed(calls.served, request(penalty))
    result = streamed(calls.served, request(penalty))
    assert result.started.cached_prompt_tokens >= 16
    return result.output.ids


def stepped(calls: SessionCalls, penalty: Fields) -> list[int]:
    opened = calls.prefill(PROMPT, sampling=options(penalty))
    ids = [opened.output.token_id]
    while len(ids) < N_TOKENS:
        ids.append(calls.step(opened.session_id).token_id)
    return ids


def resumed(calls: SessionCalls, penalty: Fields) -> list[int]:
    """Returns the tokens of steps, then of a generation on a fork of the session, then of more steps."""
    opened = calls.prefill(PROMPT, sampling=options(penalty))
    ids = [opened.output.token_id, *(calls.step(opened.session_id).token_id for _ in range(4))]
    name = calls.fork(opened.session_id).session_id
    going_on = pb.GenerateRequest(session_id=name, stop=types_pb2.StopOptions(max_tokens=9, ignore_eos=True))
    ids += streamed(calls.served, going_on).output.ids
    while len(ids) < N_TOKENS:
        ids.append(calls.step(name).token_id)
    return ids


WAYS: dict[str, Callable[[SessionCalls, Fields], list[int]]] = {
    "generate": generated,
    "cached": cached,
    "step": stepped,
    "resumed": resumed,
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PENALTIES)
def test_p34_every_penalty_is_the_definitions_however_a_token_is_drawn(calls: SessionCalls, name: str) -> None:
    penalty = PENALTIES[name]
    reference = Reference(calls)
    for way, run in WAYS.items():
        found = run(calls, penalty)
        assert (way, found) == (way, reference.tokens(found, penalty))
    # Without the penalty the tokens differ: the comparison is not vacuous.
    assert reference.tokens(found, {}) != found


@pytest.mark.long
@pytest.mark.parametrize("name", ["window", "dry"])
@pytest.mark.parametrize("run", [streamed, in_one])
def test_p34_eight_sequences_have_each_their_own_penalties(calls: SessionCalls, run: Any, name: str) -> None:
    penalty = PENALTIES[name]
    reference = Reference(calls)
    outputs: list[Output] = run(calls.served, request(penalty, num_sequences=8)).outputs
    assert len({tuple(output.ids) for output in outputs}) == 8
    for number, output in enumerate(outputs):
        assert output.ids == reference.tokens(output.ids, penalty, number)
