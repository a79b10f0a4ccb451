"""Sessions over gRPC: opening, position checks, exact repeats, forks, truncations, releases."""

from collections.abc import Iterator

import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.session_calls import GREEDY, WARM, SessionCalls, prefill, reason, refusal, seconds
from support.servers.served import Served, serve

PROMPT = [300 + 7 * i % 90 for i in range(20)]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve("sessions.max=64") as running:
        yield running


def evaluated(served: Served) -> int:
    """Returns the number of rows that the engine has evaluated."""
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


def test_ses_3_s08_a_step_at_a_wrong_position_is_refused(calls: SessionCalls) -> None:
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
    """Returns the tokens of a seeded loop. With `is_lost` every third reply is lost, and its step is sent again."""
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
    # Only the last step can be repeated.
    calls.step(name, position=21)
    assert reason(lambda: calls.step(name, [301], position=20)) == "POSITION_MISMATCH"


def test_ses_4_a_repeated_batch_gets_the_same_reply(calls: SessionCalls) -> None:
    names = [calls.prefill(PROMPT[i:]).session_id for i in range(3)]
    steps = [pb.SessionStep(session_id=name, position=20 - i) for i, name in enumerate(names)]
    first = calls.steps(*steps)
    assert calls.steps(*steps).SerializeToString() == first.SerializeToString()
    # Another call may have advanced one session of the batch. The others still get their earlier replies.
    calls.step(names[1], position=20)
    results = calls.steps(*steps).results
    assert (results[0], results[2]) == (first.results[0], first.results[2])
    assert results[1].error.reason == "POSITION_MISMATCH"


def test_ses_4_s20_a_truncation_forgets_the_stored_reply(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT, sampling=WARM).session_id
    calls.step(name, [301], position=20)
    second = calls.step(name, [302], position=21)
    assert calls.truncate(name, 22) == 22  # a no-op
    assert calls.step(name, [302], position=21) == second
    assert calls.truncate(name, 21) == 21
    before = evaluated(calls.served)
    again = calls.step(name, [302], position=21)
    # The step is evaluated again, and sampled at the same output index.
    assert evaluated(calls.served) == before + 1
    assert (again.position, again.token_id) == (second.position, second.token_id)
    calls.truncate(name, 19)
    assert reason(lambda: calls.step(name, [302], position=21)) == "POSITION_MISMATCH"


def test_ses_5_a_step_without_position_advances(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    assert [calls.step(name).position, calls.step(name).position] == [21, 22]


def test_ses_15_s03_release_is_idempotent(calls: SessionCalls) -> None:
    before = calls.served.stats().blocks_live
    name = calls.prefill(PROMPT).session_id
    assert calls.served.stats().blocks_live > before
    assert calls.release(name) is True
    assert calls.served.stats().blocks_live == before
    assert calls.release(name) is False
    assert calls.release("nobody") is False
    assert reason(lambda: calls.step(name)) == "SESSION_NOT_FOUND"


def test_s13_a_ttl_is_positive_and_within_the_most(calls: SessionCalls) -> None:
    for ttl in (0.0, -1.0, 3601.0):
        found = refusal(lambda: calls.prefill(PROMPT, ttl=seconds(ttl)))  # noqa: B023
        assert (found.reason, found.paths) == ("FIELD_INVALID", ["ttl"])
    assert calls.prefill(PROMPT, ttl=seconds(3600)).output.position == 20


def test_s16_positions_beyond_a_sessions_end_are_refused(calls: SessionCalls) -> None:
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
    # The fork inherits the pending token and the sampler.
    assert [calls.step("copy").token_id for _ in range(5)] == [calls.step(name).token_id for _ in range(5)]
    found = refusal(lambda: calls.fork(name, new_session_id="copy"))
    assert (found.reason, found.metadata) == ("POSITION_MISMATCH", {"expected": "20", "held": "25"})
    found = refusal(lambda: calls.fork(name, new_session_id="copy", position=7))
    assert (found.reason, found.metadata) == ("POSITION_MISMATCH", {"expected": "7", "held": "25"})
    calls.prefill(PROMPT[:3], "opened", position=0)
    found = refusal(lambda: calls.fork(name, new_session_id="opened"))
    assert (found.reason, found.metadata) == ("POSITION_MISMATCH", {"expected": "25", "held": "3"})
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


def test_ses_2_what_a_session_was_opened_with_stays(calls: SessionCalls) -> None:
    cache = types_pb2.CacheOptions(salt="mine", bypass_prefix=True)
    name = calls.prefill(PROMPT, cache=cache).session_id
    assert calls.prefill([301], name, cache=cache).output.position == 21
    found = refusal(lambda: calls.prefill([301], name, cache=types_pb2.CacheOptions(salt="other")))
    assert (found.reason, found.paths) == ("FIELD_INVALID", ["cache"])


def test_ses_32_the_reply_says_where_the_draws_begin(calls: SessionCalls) -> None:
    opened = calls.prefill(PROMPT, sampling=WARM)
    n_held = len(PROMPT) + 2
    anew = calls.prefill(PROMPT[:2], opened.session_id)
    kept = calls.prefill(PROMPT[:2], calls.prefill(PROMPT, sampling=WARM).session_id, base=len(PROMPT))
    assert [reply.base for reply in (opened, anew, kept)] == [len(PROMPT), n_held, len(PROMPT)]
    # Each draws as a session does that is opened with its base.
    for reply in (anew, kept):
        fresh = calls.prefill([*PROMPT, *PROMPT[:2]], sampling=WARM, base=reply.base)
        assert (fresh.output.token_id, fresh.base) == (reply.output.token_id, reply.base)
    assert anew.output.position == kept.output.position == n_held


def test_ses_14_base_continues_the_same_draws_elsewhere(calls: SessionCalls) -> None:
    whole = calls.prefill(PROMPT, sampling=WARM)
    tokens = [whole.output.token_id] + [calls.step(whole.session_id).token_id for _ in range(9)]
    moved = calls.prefill([*PROMPT, *tokens[:4]], sampling=WARM, base=len(PROMPT))
    assert [moved.output.token_id] + [calls.step(moved.session_id).token_id for _ in range(5)] == tokens[4:]
    found = refusal(lambda: calls.prefill(PROMPT, base=21))
    assert (found.reason, found.paths) == ("FIELD_INVALID", ["base"])


def test_steps_are_counted_and_repeats_are_not(calls: SessionCalls) -> None:
    registry = calls.served.state.telemetry.metrics.registry

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
