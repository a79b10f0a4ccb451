"""Steps over gRPC: held and pending tokens after each, batches of sessions, samplers, masks, logits."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.session_calls import GREEDY, SessionCalls, details_of, reason, refusal
from support.oracles import tolerances
from support.servers.gate import HELD, gate
from support.servers.served import Served, serve
from support.servers.served_models import tiny_with_text

PROMPT = [300 + 7 * i % 90 for i in range(20)]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve("sessions.max=64") as running:
        yield running


def test_ses_6_s04_without_a_pending_token_an_empty_step_is_refused(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT, step=pb.StepOptions(sample=False)).session_id
    found = refusal(lambda: calls.step(name))
    assert (found.reason, found.metadata) == ("NO_PENDING_TOKEN", {"held": "20"})
    assert calls.step(name, [301]).position == 21
    calls.truncate(name, 20)
    assert reason(lambda: calls.step(name)) == "NO_PENDING_TOKEN"
    assert calls.step(name, [301]).position == 21


def test_gen_2_a_prefill_samples_after_what_it_evaluates(calls: SessionCalls) -> None:
    opened = calls.prefill(PROMPT, step=pb.StepOptions(logits=True))
    output = opened.output
    row = np.frombuffer(output.logits, "<f4")
    assert (output.position, output.token_id) == (20, int(row.argmax()))
    pending = output.token_id
    for n in range(10):
        output = calls.step(opened.session_id, step=pb.StepOptions(scores=True))
        assert output.position == 21 + n
        assert list(output.scores.token_ids) == [pending]
        pending = output.token_id


def test_gen_3_a_step_that_samples_nothing_leaves_nothing_pending(calls: SessionCalls) -> None:
    silent = calls.prefill(PROMPT, step=pb.StepOptions(sample=False))
    assert not silent.output.HasField("token_id") and not silent.output.HasField("logprob")
    logits = pb.StepOptions(logits=True)
    followed = calls.step(silent.session_id, [333], step=logits)
    at_once = calls.prefill([*PROMPT, 333], step=logits).output
    assert followed.logits == at_once.logits != b""
    assert followed.token_id == at_once.token_id


def test_ses_10_s01_results_are_in_order_and_one_failure_leaves_the_others_whole(calls: SessionCalls) -> None:
    context = calls.served.state.model.max_context
    full = calls.prefill([300 + i % 50 for i in range(context)], step=pb.StepOptions(sample=False)).session_id
    names = [calls.prefill(PROMPT).session_id, "nobody", full, calls.prefill(PROMPT[1:]).session_id]
    alone = [calls.step(calls.prefill(PROMPT[i:]).session_id, [301]).token_id for i in range(2)]
    before = calls.served.stats().n_steps
    reply = calls.steps(*(pb.SessionStep(session_id=name, token_ids=[301]) for name in names))
    assert calls.served.stats().n_steps == before + 1
    assert [result.session_id for result in reply.results] == names
    assert [result.output.token_id for result in reply.results[::3]] == alone
    assert [(each.error.code, each.error.reason) for each in reply.results[1:3]] == [
        (grpc.StatusCode.NOT_FOUND.value[0], "SESSION_NOT_FOUND"),
        (grpc.StatusCode.OUT_OF_RANGE.value[0], "CONTEXT_TOO_LONG"),
    ]
    assert reply.forward.ToNanoseconds() > 0
    # If no step can run, the call fails with the first step's error.
    assert reason(lambda: calls.steps(*(pb.SessionStep(session_id=n, token_ids=[1]) for n in names[2:0:-1]))) == (
        "CONTEXT_TOO_LONG"
    )


def test_ses_10_s06_steps_are_some_apart_and_not_too_large(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    one = pb.SessionStep(session_id=name, token_ids=[301])
    most = calls.served.state.settings.scheduler.max_running
    for steps, path in (
        ([one, one], "steps[1].session_id"),
        ([], "steps"),
        ([pb.SessionStep(session_id=str(i)) for i in range(most + 1)], "steps"),
        ([pb.SessionStep(session_id=name, token_ids=[301] * 257)], "steps[0].token_ids"),
    ):
        found = refusal(lambda: calls.steps(*steps))  # noqa: B023
        assert (found.reason, found.paths) == ("FIELD_INVALID", [path])
    assert calls.step(name, [301] * 256).position == 276


@pytest.mark.long
@pytest.mark.parametrize("n", [2, 8, 64])
def test_ses_11_s05_one_of_many_steps_at_once_wins(calls: SessionCalls, n: int) -> None:
    name = calls.prefill(PROMPT).session_id
    expected = calls.step(calls.prefill(PROMPT).session_id, [301] * 200).token_id

    def attempt(_: int) -> pb.StepOutput | None:
        try:
            return calls.step(name, [301] * 200, position=20)
        except grpc.RpcError as error:
            assert error.code() is grpc.StatusCode.ABORTED  # type: ignore[attr-defined]
            found = details_of(error)
            assert found.reason == "SESSION_BUSY" and found.retry_seconds is not None and found.retry_seconds > 0
            return None

    with ThreadPoolExecutor(n) as threads:
        outputs = [output for output in threads.map(attempt, range(n)) if output is not None]
    # Calls that arrived after the first had ended repeat it exactly.
    assert len(outputs) >= 1 and all(output == outputs[0] for output in outputs)
    assert (outputs[0].position, outputs[0].token_id) == (220, expected)
    assert calls.step(name, position=220).position == 221


def test_ses_11_s05_while_a_step_runs_every_other_is_refused() -> None:
    with gate() as held_up, serve(model=held_up.model()) as served, ThreadPoolExecutor(1) as threads:
        calls = SessionCalls(served)
        name = calls.prefill([HELD - 10, HELD - 9]).session_id
        running = threads.submit(calls.step, name, [HELD], position=2)
        held_up.wait()
        for _ in range(21):
            assert reason(lambda: calls.step(name, [HELD], position=2)) == "SESSION_BUSY"
            assert reason(lambda: calls.step(name)) == "SESSION_BUSY"
            assert reason(lambda: calls.prefill([301], name)) == "SESSION_BUSY"
        held_up.open()
        assert (running.result().position, running.result().token_id) == (3, HELD + 1)
        assert calls.step(name, [HELD], position=2) == running.result()
        assert calls.step(name).position == 4


def test_ses_22_a_present_sampler_replaces_the_whole(calls: SessionCalls) -> None:
    """A sampler with only a seed discards the temperature set before."""
    name = calls.prefill(PROMPT, sampling=types_pb2.SamplingOptions(temperature=0.0)).session_id
    seeded = types_pb2.SamplingOptions(seed=11)
    replaced = [calls.step(name, [301], sampling=seeded).token_id]
    replaced += [calls.step(name).token_id for _ in range(12)]
    fresh = calls.prefill([*PROMPT, 301], sampling=seeded)
    expected = [fresh.output.token_id] + [calls.step(fresh.session_id).token_id for _ in range(12)]
    assert replaced == expected
    greedy = calls.prefill([*PROMPT, 301])
    assert expected != [greedy.output.token_id] + [calls.step(greedy.session_id).token_id for _ in range(12)]


def test_ses_23_s15_beyond_the_context_a_session_stays_readable(calls: SessionCalls) -> None:
    context = calls.served.state.model.max_context
    opened = calls.prefill([300 + i % 50 for i in range(context)])
    name = opened.session_id
    for call in (
        lambda: calls.step(name),
        lambda: calls.step(name, [301, 302]),
        lambda: calls.prefill([301], name),
    ):
        found = refusal(call)
        assert found.reason == "CONTEXT_TOO_LONG"
        assert found.metadata["max_context_tokens"] == str(context)
    assert calls.fork(name).position == context
    assert calls.truncate(name, context - 1) == context - 1
    assert calls.step(name, [301]).position == context


def test_ses_24_an_end_token_ends_no_session(calls: SessionCalls) -> None:
    eos = calls.served.state.model.eos_tokens[0]
    forced = types_pb2.SamplingOptions(temperature=0.0, logit_bias={eos: 100})
    opened = calls.prefill(PROMPT, sampling=forced)
    assert (opened.output.token_id, opened.output.eos) == (eos, True)
    output = calls.step(opened.session_id, sampling=GREEDY)
    assert output.position == 21 and not output.eos
    assert output.token_id == calls.prefill([*PROMPT, eos]).output.token_id
    assert calls.step(opened.session_id).position == 22


def test_ses_25_logits_are_the_row_of_the_whole_vocabulary(calls: SessionCalls) -> None:
    model = calls.served.state.model
    opened = calls.prefill(PROMPT, step=pb.StepOptions(logits=True, top_logprobs=5))
    row = np.frombuffer(opened.output.logits, "<f4")
    assert len(opened.output.logits) == 4 * model.vocab_size
    shifted = row.astype(np.float64) - row.max()
    logprobs = shifted - np.log(np.exp(shifted).sum())
    best = np.argsort(-row, kind="stable")[:5]
    candidates = opened.output.candidates.items
    assert [each.token_id for each in candidates] == best.tolist()
    assert np.allclose([each.logprob for each in candidates], logprobs[best], atol=tolerances.LOGPROB)
    silent = calls.prefill(PROMPT, step=pb.StepOptions(logits=True, sample=False))
    assert silent.output.logits == opened.output.logits


def test_ses_25_logits_may_be_switched_off() -> None:
    with serve("features.logits=false") as served:
        calls = SessionCalls(served)
        found = refusal(lambda: calls.prefill(PROMPT, step=pb.StepOptions(logits=True)))
        assert found.reason == "FEATURE_DISABLED" and "PreconditionFailure" in found.others
        name = calls.prefill(PROMPT).session_id
        assert reason(lambda: calls.step(name, step=pb.StepOptions(logits=True))) == "FEATURE_DISABLED"
        assert calls.step(name).position == 21


def test_ses_26_a_mask_restricts_the_draw_and_must_fit(calls: SessionCalls) -> None:
    vocab_size = calls.served.state.model.vocab_size
    n_bytes = (vocab_size + 7) // 8
    name = calls.prefill(PROMPT).session_id
    only = bytearray(n_bytes)
    only[345 // 8] |= 1 << 345 % 8
    assert calls.step(name, step=pb.StepOptions(allowed_token_mask=bytes(only))).token_id == 345
    for mask in (b"\1" + bytes(n_bytes - 2), b"\1" + bytes(n_bytes), bytes(n_bytes)):
        found = refusal(lambda: calls.step(name, step=pb.StepOptions(allowed_token_mask=mask)))  # noqa: B023
        assert (found.reason, found.paths) == ("FIELD_INVALID", ["steps[0].step.allowed_token_mask"])
    opening = refusal(lambda: calls.prefill(PROMPT, step=pb.StepOptions(allowed_token_mask=bytes(n_bytes))))
    assert opening.paths == ["step.allowed_token_mask"]
    assert calls.step(name, step=pb.StepOptions(allowed_token_mask=b"")).position == 22


@pytest.mark.long
def test_ses_26_a_mask_has_no_bit_beyond_the_vocabulary(tmp_path: Path) -> None:
    with serve(model=tiny_with_text(tmp_path)) as served:
        calls = SessionCalls(served)
        assert served.state.model.vocab_size == 261
        last = calls.prefill([7, 11], step=pb.StepOptions(allowed_token_mask=bytes(32) + b"\x10"))
        assert last.output.token_id == 260
        beyond = pb.StepOptions(allowed_token_mask=bytes(32) + b"\x30")
        assert refusal(lambda: calls.step(last.session_id, step=beyond)).paths == ["steps[0].step.allowed_token_mask"]
