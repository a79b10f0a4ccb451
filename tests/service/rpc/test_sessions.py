"""Sessions over gRPC: opening, the lock of a position, exact repeats, what a step holds and what is pending."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc
import numpy as np
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support import tolerances
from support.gate import HELD, gate
from support.served import Served, serve
from support.served_models import tiny_with_text
from support.session_calls import GREEDY, WARM, SessionCalls, details_of, prefill, reason, refusal, seconds

PROMPT = [300 + 7 * i % 90 for i in range(20)]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve("sessions.max=64") as running:
        yield running


@pytest.fixture
def calls(served: Served) -> Iterator[SessionCalls]:
    yield SessionCalls(served)
    served.call(lambda: [served.host.sessions.close(held) for held in list(served.host.sessions.held())])
    served.wait_for_rest()


def evaluated(served: Served) -> int:
    """Rows that the engine has evaluated."""
    stats = served.stats()
    return stats.n_decode_rows + stats.n_prefill_rows


def test_ses_1_the_server_names_a_session_that_nobody_can_guess(calls: SessionCalls) -> None:
    opened = [calls.stub.Prefill.with_call(prefill(PROMPT)) for _ in range(3)]
    instance = dict(opened[0][1].initial_metadata())["imp-instance-id"]
    assert instance
    for reply, call in opened:
        prefix, found, random = reply.session_id.split("-")
        assert (prefix, found, len(bytes.fromhex(random))) == ("imp", instance, 16)
        assert dict(call.initial_metadata())["imp-instance-id"] == instance
    assert len({reply.session_id for reply, _ in opened}) == 3
    assert {reply.output.position for reply, _ in opened} == {len(PROMPT)}


def test_ses_2_s09_s10_position_0_opens_a_session_of_that_name(calls: SessionCalls) -> None:
    assert reason(lambda: calls.prefill(PROMPT, "mine")) == "SESSION_NOT_FOUND"
    assert reason(lambda: calls.prefill(PROMPT, "mine", position=5)) == "SESSION_NOT_FOUND"
    first = calls.prefill(PROMPT, "mine", position=0)
    before = evaluated(calls.served)
    again = calls.prefill(PROMPT, "mine", position=0)
    assert first.SerializeToString() == again.SerializeToString()
    assert evaluated(calls.served) == before
    mismatch = refusal(lambda: calls.prefill([*PROMPT, 301], "mine", position=0))
    assert (mismatch.reason, mismatch.metadata) == ("POSITION_MISMATCH", {"expected": "0", "held": "20"})
    assert calls.served.stats().sessions == 1


def test_ses_3_s08_position_is_a_lock(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    held = len(PROMPT)
    before = evaluated(calls.served)
    for position in (held - 1, held + 1, held + 2, 0, 2**32 - 1):
        for call in (
            lambda: calls.prefill([301], name, position=position),  # noqa: B023
            lambda: calls.step(name, position=position),  # noqa: B023
            lambda: calls.step(name, [301, 302], position=position),  # noqa: B023
        ):
            found = refusal(call)
            assert (found.reason, found.metadata) == (
                "POSITION_MISMATCH",
                {"expected": str(position), "held": str(held)},
            )
    assert evaluated(calls.served) == before
    assert calls.step(name, position=held).position == held + 1


def seeded_loop(calls: SessionCalls, n_steps: int, is_lost: bool) -> list[int]:
    """The tokens of a seeded loop; every third reply is lost where asked for, and the step sent again."""
    opened = calls.prefill(PROMPT, sampling=WARM)
    tokens, position = [opened.output.token_id], len(PROMPT)
    for n in range(n_steps):
        output = calls.step(opened.session_id, position=position)
        if is_lost and n % 3 == 0:
            before = evaluated(calls.served)
            for _ in range(10 if n == 3 else 1):
                again = calls.step(opened.session_id, position=position)
                assert again.SerializeToString() == output.SerializeToString()
            assert evaluated(calls.served) == before
            output = again
        tokens.append(output.token_id)
        position = output.position
    return tokens


def test_ses_4_s07_an_exact_repeat_gets_the_stored_reply(calls: SessionCalls) -> None:
    assert seeded_loop(calls, 64, is_lost=True) == seeded_loop(calls, 64, is_lost=False)


def test_ses_4_s08_the_same_position_with_anything_else_is_a_mismatch(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    stored = calls.step(name, [301], position=20)
    assert calls.step(name, [301], position=20) == stored
    others = (
        {"token_ids": [302]},
        {"token_ids": []},
        {"token_ids": [301], "step": pb.StepOptions(top_logprobs=2)},
        {"token_ids": [301], "step": pb.StepOptions(sample=False)},
        {"token_ids": [301], "sampling": GREEDY},
    )
    for other in others:
        step = pb.SessionStep(session_id=name, position=20, **other)
        assert reason(lambda: calls.steps(step)) == "POSITION_MISMATCH"  # noqa: B023
    assert reason(lambda: calls.prefill([301], name, position=20)) == "POSITION_MISMATCH"
    # The last but one is no more.
    calls.step(name, position=21)
    assert reason(lambda: calls.step(name, [301], position=20)) == "POSITION_MISMATCH"


def test_ses_4_a_repeated_batch_gets_the_same_reply(calls: SessionCalls) -> None:
    names = [calls.prefill(PROMPT[i:]).session_id for i in range(3)]
    steps = [pb.SessionStep(session_id=name, position=20 - i) for i, name in enumerate(names)]
    first = calls.steps(*steps)
    assert calls.steps(*steps).SerializeToString() == first.SerializeToString()
    # A part of it may have been lost before it came here: the others are still told what they were.
    calls.step(names[1], position=20)
    results = calls.steps(*steps).results
    assert (results[0], results[2]) == (first.results[0], first.results[2])
    assert results[1].error.reason == "POSITION_MISMATCH"


def test_ses_4_s20_a_truncation_forgets_the_stored_reply(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT, sampling=WARM).session_id
    calls.step(name, [301], position=20)
    second = calls.step(name, [302], position=21)
    assert calls.truncate(name, 22) == 22  # changes nothing
    assert calls.step(name, [302], position=21) == second
    assert calls.truncate(name, 21) == 21
    before = evaluated(calls.served)
    again = calls.step(name, [302], position=21)
    # Evaluated again, and drawn as the output of the same index.
    assert evaluated(calls.served) == before + 1
    assert (again.position, again.token_id) == (second.position, second.token_id)
    calls.truncate(name, 19)
    assert reason(lambda: calls.step(name, [302], position=21)) == "POSITION_MISMATCH"


def test_ses_5_a_step_without_position_advances(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    assert [calls.step(name).position, calls.step(name).position] == [21, 22]


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
    context = calls.served.host.model.max_context
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
    # With none that could be run the call fails as its first.
    assert reason(lambda: calls.steps(*(pb.SessionStep(session_id=n, token_ids=[1]) for n in names[2:0:-1]))) == (
        "CONTEXT_TOO_LONG"
    )


def test_ses_10_s06_steps_are_some_apart_and_not_too_large(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    one = pb.SessionStep(session_id=name, token_ids=[301])
    most = calls.served.host.settings.scheduler.max_running
    for steps, path in (
        ([one, one], "steps[1].session_id"),
        ([], "steps"),
        ([pb.SessionStep(session_id=str(i)) for i in range(most + 1)], "steps"),
        ([pb.SessionStep(session_id=name, token_ids=[301] * 257)], "steps[0].token_ids"),
    ):
        found = refusal(lambda: calls.steps(*steps))  # noqa: B023
        assert (found.reason, found.paths) == ("FIELD_INVALID", [path])
    assert calls.step(name, [301] * 256).position == 276


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
    # Those that came after the first had ended repeat it exactly.
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


def test_ses_15_s03_release_is_idempotent(calls: SessionCalls) -> None:
    before = calls.served.stats().blocks_live
    name = calls.prefill(PROMPT).session_id
    assert calls.served.stats().blocks_live > before
    assert calls.release(name) is True
    assert calls.served.stats().blocks_live == before
    assert calls.release(name) is False
    assert calls.release("nobody") is False
    assert reason(lambda: calls.step(name)) == "SESSION_NOT_FOUND"


def test_ses_22_a_present_sampler_replaces_the_whole(calls: SessionCalls) -> None:
    """Only a seed leaves nothing of the temperature that was set before."""
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
    context = calls.served.host.model.max_context
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
    eos = calls.served.host.model.eos_tokens[0]
    forced = types_pb2.SamplingOptions(temperature=0.0, logit_bias={eos: 100})
    opened = calls.prefill(PROMPT, sampling=forced)
    assert (opened.output.token_id, opened.output.eos) == (eos, True)
    output = calls.step(opened.session_id, sampling=GREEDY)
    assert output.position == 21 and not output.eos
    assert output.token_id == calls.prefill([*PROMPT, eos]).output.token_id
    assert calls.step(opened.session_id).position == 22


def test_ses_25_logits_are_the_row_of_the_whole_vocabulary(calls: SessionCalls) -> None:
    model = calls.served.host.model
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
    vocab_size = calls.served.host.model.vocab_size
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


def test_ses_26_a_mask_has_no_bit_beyond_the_vocabulary(tmp_path: Path) -> None:
    with serve(model=tiny_with_text(tmp_path)) as served:
        calls = SessionCalls(served)
        assert served.host.model.vocab_size == 261
        last = calls.prefill([7, 11], step=pb.StepOptions(allowed_token_mask=bytes(32) + b"\x10"))
        assert last.output.token_id == 260
        beyond = pb.StepOptions(allowed_token_mask=bytes(32) + b"\x30")
        assert refusal(lambda: calls.step(last.session_id, step=beyond)).paths == ["steps[0].step.allowed_token_mask"]


def test_s13_a_ttl_is_positive_and_within_the_most(calls: SessionCalls) -> None:
    for ttl in (0.0, -1.0, 3601.0):
        found = refusal(lambda: calls.prefill(PROMPT, ttl=seconds(ttl)))  # noqa: B023
        assert (found.reason, found.paths) == ("FIELD_INVALID", ["ttl"])
    assert calls.prefill(PROMPT, ttl=seconds(3600)).output.position == 20


def test_s16_beyond_a_sessions_end(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    for position in (21, 2**32 - 1):
        for call in (
            lambda: calls.truncate(name, position),  # noqa: B023
            lambda: calls.fork(name, position=position),  # noqa: B023
        ):
            found = refusal(call)
            assert (found.reason, found.metadata) == (
                "POSITION_BEYOND_END",
                {"position": str(position), "held": "20"},
            )
    assert calls.step(name, position=20).position == 21


def test_ses_14_s09_a_named_fork_may_be_repeated(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT, sampling=WARM).session_id
    first = calls.fork(name, new_session_id="copy")
    assert (first.session_id, first.position) == ("copy", 20)
    assert calls.fork(name, new_session_id="copy").SerializeToString() == first.SerializeToString()
    assert calls.served.stats().sessions == 2
    # The pending token and the sampler are the parent's.
    assert [calls.step("copy").token_id for _ in range(5)] == [calls.step(name).token_id for _ in range(5)]
    found = refusal(lambda: calls.fork(name, new_session_id="copy"))
    assert (found.reason, found.metadata) == ("POSITION_MISMATCH", {"expected": "0", "held": "25"})
    part = calls.fork(name, position=7)
    assert (part.position, reason(lambda: calls.step(part.session_id))) == (7, "NO_PENDING_TOKEN")


def test_s17_truncating_equals_never_having_had(calls: SessionCalls) -> None:
    logits = pb.StepOptions(logits=True)
    name = calls.prefill([*PROMPT, *PROMPT]).session_id
    for position in (39, 33, 32, 31, 17, 16, 1):
        assert calls.truncate(name, position) == position
        again = calls.step(name, [321], step=logits)
        fresh = calls.prefill([*[*PROMPT, *PROMPT][:position], 321], step=logits).output
        assert again.logits == fresh.logits
    assert calls.truncate(name, 0) == 0
    assert calls.prefill("Once upon a time", name).output == calls.prefill("Once upon a time").output


def test_s22_a_session_takes_no_second_conversation(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="hi")])
    found = refusal(lambda: calls.stub.Prefill(pb.PrefillRequest(session_id=name, chat=chat)))
    assert (found.reason, found.paths) == ("FIELD_INVALID", ["chat"])


def test_ses_2_what_a_session_was_opened_with_stays(calls: SessionCalls) -> None:
    cache = types_pb2.CacheOptions(salt="mine", bypass_prefix=True)
    name = calls.prefill(PROMPT, cache=cache).session_id
    assert calls.prefill([301], name, cache=cache).output.position == 21
    found = refusal(lambda: calls.prefill([301], name, cache=types_pb2.CacheOptions(salt="other")))
    assert (found.reason, found.paths) == ("FIELD_INVALID", ["cache"])


def test_ses_14_base_continues_the_same_draws_elsewhere(calls: SessionCalls) -> None:
    whole = calls.prefill(PROMPT, sampling=WARM)
    tokens = [whole.output.token_id] + [calls.step(whole.session_id).token_id for _ in range(9)]
    moved = calls.prefill([*PROMPT, *tokens[:4]], sampling=WARM, base=len(PROMPT))
    assert [moved.output.token_id] + [calls.step(moved.session_id).token_id for _ in range(5)] == tokens[4:]
    found = refusal(lambda: calls.prefill(PROMPT, base=21))
    assert (found.reason, found.paths) == ("FIELD_INVALID", ["base"])


def test_steps_are_counted_and_repeats_are_not(calls: SessionCalls) -> None:
    registry = calls.served.host.telemetry.metrics.registry

    def counted() -> list[float]:
        prompts = [registry.get_sample_value("imp_prompt_tokens_total", {"kind": k}) for k in ("computed", "cached")]
        return [value or 0.0 for value in (registry.get_sample_value("imp_output_tokens_total"), *prompts)]

    before = counted()
    prompt = [*range(500, 533)]
    calls.prefill(prompt, "counted", position=0)
    calls.step("counted", position=33)
    calls.steps(pb.SessionStep(session_id="counted"), pb.SessionStep(session_id="nobody"))
    after = [3.0, 33.0, 0.0]
    assert [now - then for now, then in zip(counted(), before, strict=True)] == after
    calls.prefill(prompt, "cached", position=0, step=pb.StepOptions(sample=False))
    calls.step("cached", [400], position=33)
    calls.step("cached", [400], position=33)
    cached = [after[0] + 1, after[1] + 1, after[2] + 32]
    assert [now - then for now, then in zip(counted(), before, strict=True)] == cached
