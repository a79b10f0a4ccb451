"""Generate on a session: where it begins, what the session keeps, and which other calls are possible meanwhile."""

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.session_calls import GREEDY, WARM, SessionCalls, details_of, prefill, reason, refusal
from support.run.patience import HANGS_AFTER
from support.servers.gate import HELD, gate
from support.servers.served import serve, tokens_of

PROMPT = [300 + 11 * i % 90 for i in range(20)]
SILENT = pb.StepOptions(sample=False)


def going_on(name: str, n: int, **fields: Any) -> pb.GenerateRequest:
    """Returns a generation on a session that ignores end tokens."""
    request = pb.GenerateRequest(session_id=name, **fields)
    request.stop.max_tokens = n
    request.stop.ignore_eos = True
    return request


def generated(calls: SessionCalls, request: pb.GenerateRequest) -> list[int]:
    """Reads a stream to its end and returns its tokens."""
    return tokens_of(list(calls.stub.Generate(request, timeout=HANGS_AFTER)))


def stepped(calls: SessionCalls, name: str, n: int) -> list[int]:
    """Returns the tokens of `n` steps."""
    return [calls.step(name).token_id for _ in range(n)]


@pytest.mark.long
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "seeded"])
def test_ses_20_gen_8_a_generation_goes_on_with_what_is_pending(
    calls: SessionCalls, sampling: types_pb2.SamplingOptions
) -> None:
    alone = calls.prefill(PROMPT, sampling=sampling)
    expected = [alone.output.token_id, *stepped(calls, alone.session_id, 23)]
    opened = calls.prefill(PROMPT, sampling=sampling)
    name = opened.session_id
    tokens = [opened.output.token_id]
    tokens += generated(calls, going_on(name, 5))
    tokens += stepped(calls, name, 2)
    whole = calls.stub.GenerateUnary(pb.GenerateUnaryRequest(request=going_on(name, 9)))
    tokens += whole.sequences[0].output.token_ids
    tokens += generated(calls, going_on(name, 7))
    assert tokens == expected


def test_ses_20_with_nothing_pending_it_draws_from_the_last_held_position(calls: SessionCalls) -> None:
    opened = calls.prefill(PROMPT)
    expected = [opened.output.token_id, *stepped(calls, opened.session_id, 7)]
    silent = calls.prefill(PROMPT, step=SILENT).session_id
    assert generated(calls, going_on(silent, 8)) == expected
    calls.truncate(silent, 20)
    assert generated(calls, going_on(silent, 8)) == expected
    calls.truncate(silent, 0)
    found = refusal(lambda: generated(calls, going_on(silent, 8)))
    assert (found.reason, found.metadata) == ("NO_PENDING_TOKEN", {"held": "0"})


@pytest.mark.parametrize("n", [0, 1, 6])
def test_ses_20_the_end_tells_what_the_session_holds(calls: SessionCalls, n: int) -> None:
    name = calls.prefill(PROMPT).session_id
    *_, last = calls.stub.Generate(going_on(name, n))
    held = int(refusal(lambda: calls.step(name, position=0)).metadata["held"])
    assert last.finished.HasField("position") and last.finished.position == held
    whole = calls.stub.GenerateUnary(pb.GenerateUnaryRequest(request=going_on(name, 3))).sequences[0]
    assert whole.position == int(refusal(lambda: calls.step(name, position=0)).metadata["held"])
    alone = calls.stub.GenerateUnary(
        pb.GenerateUnaryRequest(request=pb.GenerateRequest(text="a", stop={"max_tokens": 1}))
    )
    assert not alone.sequences[0].HasField("position")


def test_ses_20_an_absent_sampler_stays_and_a_present_one_replaces_it(calls: SessionCalls) -> None:
    seeded = types_pb2.SamplingOptions(temperature=1.2, seed=5)
    opened = calls.prefill(PROMPT)
    replaced = generated(calls, going_on(opened.session_id, 6, sampling=seeded))
    fresh = calls.prefill([*PROMPT, opened.output.token_id], sampling=seeded)
    assert replaced == [fresh.output.token_id, *stepped(calls, fresh.session_id, 5)]
    assert generated(calls, going_on(opened.session_id, 6)) == generated(calls, going_on(fresh.session_id, 6))


def test_ses_6_a_generation_that_ended_with_a_stop_token_leaves_nothing_pending(calls: SessionCalls) -> None:
    opened = calls.prefill(PROMPT)
    name = opened.session_id
    second = calls.step(calls.fork(name).session_id).token_id
    request = going_on(name, 5)
    request.stop.token_ids.append(second)
    assert generated(calls, request) == []
    found = refusal(lambda: calls.step(name))
    assert (found.reason, found.metadata) == ("NO_PENDING_TOKEN", {"held": "21"})
    assert calls.step(name, [second], position=21).position == 22


@pytest.mark.long
@pytest.mark.parametrize("n_read", [1, 2, 7])
def test_ses_21_s23_a_session_keeps_what_was_handed_out(calls: SessionCalls, n_read: int) -> None:
    """A generation is cancelled midway: the held and pending tokens are the prompt and the start of the output."""
    reference = calls.prefill(PROMPT)
    expected = [reference.output.token_id, *stepped(calls, reference.session_id, 200)]
    name = calls.prefill(PROMPT).session_id
    # At most as many tokens as `expected` has, in case the generation ends before the cancel arrives.
    request = going_on(name, 150)
    request.output.max_chunk_tokens = 1
    stream = calls.stub.Generate(request)
    read: list[int] = []
    while len(read) < n_read:
        read += tokens_of([next(stream)])
    stream.cancel()
    assert read == expected[1 : 1 + len(read)]
    # A call with a wrong position returns the right one.
    calls.served.wait_until(lambda: not calls.served.state.sessions.held()[-1].is_busy, "the generation has ended")
    held = int(refusal(lambda: calls.step(name, position=0)).metadata["held"])
    n_outputs = held + 1 - len(PROMPT)
    assert n_outputs >= 1 + n_read
    assert calls.step(name, position=held).token_id == expected[n_outputs]


def test_ses_11_s22_while_a_generation_runs_the_session_is_busy() -> None:
    """Each token follows the last, and the engine stops at one of them."""
    with gate() as held_up, serve(model=held_up.model()) as served, ThreadPoolExecutor(1) as threads:
        calls = SessionCalls(served)
        name = calls.prefill([HELD - 10, HELD - 9]).session_id
        stream = calls.stub.Generate(going_on(name, 400))
        assert next(stream).HasField("started")
        held_up.wait()
        for call in (
            lambda: calls.step(name),
            lambda: calls.prefill([301], name),
            lambda: calls.fork(name),
            lambda: calls.truncate(name, 3),
            lambda: generated(calls, going_on(name, 2)),
        ):
            found = refusal(call)
            assert found.reason == "SESSION_BUSY" and found.retry_seconds is not None
        released = threads.submit(calls.release, name)
        served.wait_until(lambda: len(served.state.sessions) == 0, "the session is closed")
        held_up.open()
        assert released.result() is True
        with pytest.raises(grpc.RpcError) as ended:
            list(stream)
        assert details_of(ended.value).reason == "SESSION_NOT_FOUND"
        served.wait_for_rest()


def test_s22_a_step_that_runs_keeps_a_generation_out(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    (held,) = calls.served.state.sessions.held()
    calls.served.call(lambda: calls.served.state.sessions.take("", name))
    assert reason(lambda: generated(calls, going_on(name, 2))) == "SESSION_BUSY"
    calls.served.call(lambda: calls.served.state.sessions.leave(held))
    found = refusal(lambda: generated(calls, going_on(name, 2, num_sequences=2)))
    assert (found.reason, found.paths) == ("FIELD_INVALID", ["num_sequences"])
    assert len(generated(calls, going_on(name, 2))) == 2


def test_ses_4_a_generation_forgets_the_stored_reply(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    calls.step(name, [301], position=20)
    generated(calls, going_on(name, 3))
    assert reason(lambda: calls.step(name, [301], position=20)) == "POSITION_MISMATCH"


def test_ses_28_n05_a_foreign_session_is_unknown_to_generate(calls: SessionCalls) -> None:
    name = SessionCalls(calls.served, "a").prefill(PROMPT).session_id
    for unknown in (name, "chance"):
        found = refusal(lambda: generated(calls, going_on(unknown, 2)))  # noqa: B023
        assert (found.reason, found.metadata) == ("SESSION_NOT_FOUND", {"session_id": unknown})
        assert found.message == "there is no such session"


def test_s24_penalties_and_seed_after_a_truncation_are_those_of_a_fresh_replay(calls: SessionCalls) -> None:
    options = types_pb2.SamplingOptions(
        temperature=0.9, seed=3, frequency_penalty=0.7, presence_penalty=0.4, repetition_penalty=1.2
    )
    opened = calls.prefill(PROMPT, sampling=options)
    tokens = [opened.output.token_id, *stepped(calls, opened.session_id, 11)]
    for position in (28, 23, 20):
        calls.truncate(opened.session_id, position)
        again = calls.step(opened.session_id, [tokens[position - 20]], position=position)
        assert [again.token_id, *stepped(calls, opened.session_id, 2)] == tokens[position - 19 : position - 16]
        copy = calls.fork(opened.session_id, position=position + 1).session_id
        assert calls.step(copy, [tokens[position - 19]]).token_id == tokens[position - 18]


def test_s22_a_session_takes_no_second_conversation(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="hi")])
    found = refusal(lambda: calls.stub.Prefill(pb.PrefillRequest(session_id=name, chat=chat)))
    assert (found.reason, found.paths) == ("FIELD_INVALID", ["chat"])
    opened = calls.stub.Prefill(pb.PrefillRequest(chat=chat, sampling=GREEDY)).output
    request = pb.GenerateRequest(chat=chat, sampling=GREEDY)
    request.stop.max_tokens = 1
    asked = calls.stub.GenerateUnary(pb.GenerateUnaryRequest(request=request))
    assert opened.position == asked.started.prompt_tokens
    assert [opened.token_id] == list(asked.sequences[0].output.token_ids)


@pytest.mark.long
@pytest.mark.parametrize("sampling", [GREEDY, WARM], ids=["greedy", "seeded"])
def test_gen_4_d12_a_loop_on_one_stream_gives_the_tokens_of_generate(
    calls: SessionCalls, sampling: types_pb2.SamplingOptions
) -> None:
    for i, prompt in enumerate(["Once upon a time", "the cat", [301, 302, 303, 340], PROMPT]):
        request = pb.GenerateRequest(sampling=sampling, **{"text": prompt} if isinstance(prompt, str) else {})
        if not isinstance(prompt, str):
            request.token_ids.ids.extend(prompt)
        request.stop.max_tokens = 24
        request.stop.ignore_eos = True
        name = f"streamed-{i}"
        step = pb.DecodeStreamRequest(step=pb.DecodeStepRequest(steps=[pb.SessionStep(session_id=name)]))
        requests = [pb.DecodeStreamRequest(prefill=prefill(prompt, name, position=0, sampling=sampling)), *[step] * 23]
        first, *rest = calls.stub.DecodeStream(iter(requests), timeout=HANGS_AFTER)
        tokens = [first.prefill.output.token_id, *(each.step.results[0].output.token_id for each in rest)]
        assert tokens == generated(calls, request)
        texts = [first.prefill.output.text, *(each.step.results[0].output.text for each in rest)]
        (whole,) = calls.stub.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences
        # Only a generation emits an unfinished character at its end.
        assert whole.output.text.startswith("".join(texts))


@pytest.mark.long
def test_rpc_3_ses_20_the_pending_token_of_a_session_is_a_prompt_token(calls: SessionCalls) -> None:
    """Usage and `started` count what the call evaluates: the pending token, or nothing without one."""
    for step, n_prompt in ((None, 1), (SILENT, 0)):
        name = calls.prefill(PROMPT, step=step).session_id
        whole = calls.stub.GenerateUnary(pb.GenerateUnaryRequest(request=going_on(name, 3)))
        assert (whole.started.prompt_tokens, whole.usage.prompt_tokens, whole.usage.output_tokens) == (
            n_prompt,
            n_prompt,
            3,
        )
