"""Readers of every speed: merged output, paused sequences, and the end of streams that nobody reads."""

from __future__ import annotations

import asyncio
import gc
import random
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from imp_service.api.options import OutputOptions
from imp_service.api.replies import Candidate
from imp_service.generation.output_stream import OutputStream, unread_token_bytes
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, types_pb2
from imp_service.rpc.call import GrpcCall
from imp_service.serving.generation_stream import GenerationStream
from support.calls.failed_calls import FailedCall, failed
from support.calls.generations import counted, in_one, result_of, saying, spelled, streamed
from support.run.patience import HANGS_AFTER
from support.run.quick_run import Repeats
from support.run.release_run import repetitions
from support.servers.gate import ALL_STEPS, HELD, gate
from support.servers.served import Served, ask, serve, tokens_of
from support.servers.served_models import scripted

SMALL_WINDOWS = (("grpc.http2.lookahead_bytes", 65536), ("grpc.http2.bdp_probe", 0))
DEADLINE = "DEADLINE_EXCEEDED"
# Far more tokens than fit in the buffers between server and reader, which hold three times as many on a busy machine.
N_LONG = 4000
N_STREAMS = repetitions(10_000, 250)
N_LEAVING = repetitions(20_000, 300)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    model = scripted(max_context=N_LONG + 100, n_blocks=500)
    with serve("slow_client.bytes=8KiB", "slow_client.timeout=300s", model=model) as server:
        yield server


def token_event(n_candidates: int) -> Any:
    """Returns an engine output with the attributes that a stream uses."""
    candidates = [SimpleNamespace(token=300 + i, logprob=-i / 7) for i in range(n_candidates)]
    return SimpleNamespace(token=7, logprob=-0.25, candidates=candidates)


def chatty(prompt: int, n: int, **fields: Any) -> pb.GenerateRequest:
    """Returns a request with about 200 bytes of output per token."""
    output = types_pb2.OutputOptions(top_logprobs=20, logprobs=True)
    stop = types_pb2.StopOptions(max_tokens=n, ignore_eos=True)
    return ask([prompt], None, stop=stop, output=output, **fields)


def stalled(served: Served, request: pb.GenerateRequest) -> tuple[Any, list[pb.GenerateResponse]]:
    """Starts a stream, reads one message and waits until it is paused. Returns the stream and its messages."""
    stream = inference_pb2_grpc.InferenceServiceStub(served.channel(*SMALL_WINDOWS)).Generate(request)
    messages = [next(stream)]
    name = messages[0].started.request_id

    seen: list[int] = []

    def has_come_to_rest() -> bool:
        """Reports whether the sequences are paused and the output has not grown for a while: all buffers are full."""
        (request,) = [each for each in served.state.requests if each.request_id == name]
        seen.append(request.n_output_tokens if request.stream.is_paused else -1)
        return len(seen) > 30 and seen[-1] > 0 and len(set(seen[-30:])) == 1

    served.wait_until(has_come_to_rest, "paused")
    return stream, messages


def test_sch_11_r08_w06_a_reader_that_stops_is_paused_then_ended(served: Served) -> None:
    stream, _ = stalled(served, chatty(300, N_LONG, request_id="stalled"))
    (request,) = list(served.state.requests)
    # Another request runs to its end meanwhile. Once all buffers are full, the paused one generates nothing and keeps
    # its output. A step may have been in progress when the pause was requested.
    n_made, n_before = served.call(lambda: request.n_output_tokens), -2
    while n_made > n_before + 1:
        n_before = n_made
        assert streamed(served, ask([400], 200)).output.ids == list(range(401, 601))
        n_made = served.call(lambda: request.n_output_tokens)
    assert n_made < N_LONG
    assert served.call(lambda: request.n_unread_messages) * 64 * 250 >= 8192
    served.jump(200)
    assert served.call(lambda: len(served.state.requests)) == 1
    served.jump(100)
    served.wait_for_rest()
    refusal = failed(lambda: list(stream))
    assert (refusal.code, refusal.reason) == ("RESOURCE_EXHAUSTED", "SLOW_CLIENT")
    assert int(refusal.metadata["unread"]) > 0
    assert refusal.details.retry_seconds is None


def test_sch_11_r09_r13_a_slow_reader_loses_nothing_and_its_waiting_is_reported(served: Served) -> None:
    stream, messages = stalled(served, chatty(300, N_LONG))
    served.jump(200)
    messages += list(stream)
    result = result_of(messages)
    assert result.output.ids == [(301 + i) % served.state.model.vocab_size for i in range(N_LONG)]
    assert (result.output.reason, len(result.output.candidates)) == ("MAX_TOKENS", N_LONG)
    assert result.timings.blocked.ToNanoseconds() >= 200 * 10**9
    served.wait_for_rest()


@pytest.mark.long
def test_r09_a_slow_but_steady_reader_is_never_ended(served: Served) -> None:
    """It is paused throughout, but reads more than a transport window within each time limit."""
    request = chatty(300, N_LONG)
    request.output.max_chunk_tokens = 1
    stream, messages = stalled(served, request)
    (running,) = list(served.state.requests)

    def n_taken() -> int:
        """Returns the number of messages that the server's writer has taken, one per token."""
        return running.n_output_tokens - running.n_unread_messages

    for _ in range(3):
        served.jump(200)
        n_before = served.call(n_taken)
        messages += [next(stream) for _ in range(300)]
        # Reading frees space for the writer only some time later. The clock does not advance until then.
        served.wait_until(lambda: n_taken() > n_before, "the reader is seen to read")  # noqa: B023
    assert served.call(lambda: len(served.state.requests)) == 1 and len(messages) == 901
    stream.cancel()
    served.wait_for_rest()


def test_r14_eight_sequences_of_a_slow_reader_are_freed_together(served: Served) -> None:
    stream, _ = stalled(served, chatty(300, 400, num_sequences=8))
    assert served.stats().running == 8
    stream.cancel()
    served.wait_for_rest()


@pytest.mark.long
def test_r13_one_message_for_each_step_at_any_speed(served: Served) -> None:
    request = chatty(300, 900)
    request.output.max_chunk_tokens = 1
    stream, messages = stalled(served, request)
    messages += list(stream)
    assert result_of(messages).chunks == [1] * 900


def test_r05_gen_18_a_deadline_that_has_passed_is_never_scheduled(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(model=scripted()) as served:
        stub = served.inference
        assert failed(lambda: list(stub.Generate(ask([300], 4), timeout=0.0))).code == DEADLINE
        # One millisecond may suffice.
        assert stub.Generate(ask([300], 4), timeout=0.001).code().name in (DEADLINE, "OK")
        # On the same connection: the server has received the calls above before this one.
        assert len(tokens_of(list(stub.Generate(ask([300], 4))))) == 4
        served.wait_for_calls()
        served.wait_for_rest()
        steps = served.stats().n_steps
        with monkeypatch.context() as patch:
            # The deadline passes while the request travels.
            patch.setattr(GrpcCall, "time_remaining", lambda _: 0.0)
            for run in (streamed, in_one):
                assert failed(lambda run=run: run(served, ask([300], 4), timeout=HANGS_AFTER)).code == DEADLINE
        assert served.stats().n_steps == steps
        assert counted(served, "imp_requests_ended_total", outcome="timed_out") >= 2


def test_r06_r07_gen_18_a_limit_of_time_ends_with_ok_and_what_there_is() -> None:
    with gate() as held, serve("limits.request_time=60s", model=held.model()) as served, served.frozen():
        asked = types_pb2.StopOptions(ignore_eos=True)
        asked.time_limit.FromSeconds(10)
        for stop, seconds in ((asked, 11), (types_pb2.StopOptions(ignore_eos=True), 61)):
            stream = served.inference.Generate(ask([HELD - 3], None, stop=stop), timeout=3600)
            messages = [next(stream), next(stream)]
            held.wait()
            served.jump(seconds - 2)
            served.jump(2)
            held.open()
            result = result_of([*messages, *stream])
            assert (result.output.reason, stream.code()) == ("TIME_LIMIT", grpc.StatusCode.OK)
            assert result.output.ids[:3] == [HELD - 2, HELD - 1, HELD] and len(result.output.ids) <= 4
        served.wait_for_rest()
        held.open(ALL_STEPS)


def test_r07_gen_18_a_time_limit_ends_a_request_that_still_waits_with_started() -> None:
    with gate() as held, serve("scheduler.max_running=1", model=held.model()) as served, served.frozen():
        first = served.inference.Generate(ask([HELD - 2], 4))
        held.wait()
        request = ask([300, 301], None)
        request.stop.time_limit.FromSeconds(5)
        waiting = served.inference.Generate(request)
        served.wait_until(lambda: served.state.model.client.engine.stats().queued == 1, "it waits")
        served.jump(6)
        held.open(ALL_STEPS)
        result = result_of(list(waiting))
        assert (result.output.reason, result.output.ids, result.usage.prompt_tokens) == ("TIME_LIMIT", [], 2)
        assert len(tokens_of(list(first))) == 4
        served.wait_for_rest()


def test_rpc_1_rpc_2_r10_streams_of_random_length_at_random_times(served: Served, repeats: Repeats) -> None:
    """The checker of every stream verifies its grammar, numbering and usage; 10,000 streams in the release run."""
    draw = random.Random(10)
    stub = served.inference

    def one(seed: int) -> int:
        mine = random.Random(seed)
        request = ask([300 + mine.randrange(500)], mine.randrange(0, 60), num_sequences=mine.choice([1, 1, 1, 2, 5]))
        request.stop.ignore_eos = True
        request.output.max_chunk_tokens = mine.choice([1, 2, 7, 1000])
        request.output.max_chunk_delay.FromMilliseconds(mine.choice([0, 0, 3]))
        result = result_of(list(stub.Generate(request)))
        first = request.token_ids.ids[0]
        expected = [first + 1 + i for i in range(request.stop.max_tokens)]
        assert [output.ids for output in result.outputs] == [expected] * request.num_sequences
        return result.usage.output_tokens

    before = counted(served, "imp_output_tokens_total")
    with ThreadPoolExecutor(12) as pool:
        n_sent = sum(pool.map(one, [draw.randrange(10**6) for _ in range(repeats(N_STREAMS))]))
    assert counted(served, "imp_output_tokens_total") - before == n_sent
    served.wait_for_rest()


def test_r01_r04_gen_16_cancels_and_lost_connections_at_random_moments_leave_nothing(
    served: Served, repeats: Repeats
) -> None:
    draw = random.Random(4)
    shared = served.inference

    def one(i: int) -> None:
        n_read, lose = draw.randrange(0, 6), i % 5 == 0
        request = ask([300 + i], 200, num_sequences=1 + i % 2)
        request.output.max_chunk_tokens = 1
        if lose:
            with served.connection() as channel:
                stream = inference_pb2_grpc.InferenceServiceStub(channel).Generate(request)
                for _ in range(n_read):
                    next(stream)
            return
        stream = shared.Generate(request)
        for _ in range(n_read):
            next(stream)
        stream.cancel()

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(one, range(repeats(N_LEAVING))))
    served.wait_for_rest()
    served.wait_until(lambda: len(served.state.requests) == 0, "none is known")
    assert streamed(served, ask([400], 3)).output.ids == [401, 402, 403]


def test_r15_a_bug_in_one_stream_ends_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test injects a bug into text decoding, event merging and message writing."""
    from imp_service.generation.output_stream import OutputStream
    from imp_service.rpc.imp_v1 import generate
    from imp_service.text import TextStream

    def broken(original: Any, is_victim: Any) -> Any:
        def wrapped(*given: Any, **named: Any) -> Any:
            if is_victim(*given):
                raise RuntimeError("forced")
            return original(*given, **named)

        return wrapped

    stages = [
        (TextStream, "feed_all", lambda _, ids: 666 in ids),
        (OutputStream, "add", lambda _, event: event.token == 666),
        (generate, "write_reply", lambda reply, *_: 666 in getattr(reply, "token_ids", ())),
    ]
    with serve(model=scripted()) as served:
        # The log names the bug's location, which the check of a healthy server's log forbids.
        served.is_checked = False
        for owner, name, is_victim in stages:
            with monkeypatch.context() as patch:
                patch.setattr(owner, name, broken(getattr(owner, name), is_victim))
                healthy = served.inference.Generate(ask([900], 200))
                victim = served.inference.Generate(ask([660], 200, request_id="victim"))
                refusal = failed(lambda victim=victim: list(victim))
                assert (refusal.code, refusal.reason) == ("INTERNAL", "BUG")
                assert refusal.details.others["RequestInfo"].request_id == "victim"
                assert len(tokens_of(list(healthy))) == 200
            served.wait_for_rest()


def test_rpc_1_nan_logits_end_with_a_status_after_what_was_drawn(served: Served) -> None:
    with serve(model=scripted(script={"nan_token": 705})) as broken:
        stream = broken.inference.Generate(ask([700], 20))
        messages = []
        with pytest.raises(grpc.RpcError) as raised:
            messages.extend(stream)
        failure = FailedCall(raised.value)
        assert (failure.code, failure.reason) == ("INTERNAL", "NON_FINITE")
        assert "position" in failure.metadata
        broken.wait_for_rest()


def test_txt_4_d12_a_slow_reader_does_not_hold_up_a_stop_string() -> None:
    """The engine stops at once, whether anybody reads or not: the paused sequence need not resume."""
    table = [*spelled("x" * 700), *spelled("END"), *spelled("never sent")]
    model = saying(table, max_context=1000, n_blocks=80)
    with serve("slow_client.bytes=1MiB", model=model) as served:
        request = ask([5], 900, output=types_pb2.OutputOptions(top_logprobs=20, logprobs=True))
        request.stop.strings.append("END")
        request.stop.ignore_eos = True
        stream = inference_pb2_grpc.InferenceServiceStub(served.channel(*SMALL_WINDOWS)).Generate(request)
        messages = [next(stream)]
        served.wait_for_rest()
        result = result_of([*messages, *stream])
        assert (result.output.text, result.output.reason, len(result.output.ids)) == ("x" * 700, "STOP", 703)
        assert in_one(served, request).output == result.output


@pytest.mark.long
def test_sch_11_a_stalled_reader_of_candidates_costs_what_slow_client_bytes_says(served: Served) -> None:
    """Waiting output is stored without objects, and its size equals the counted size."""
    stream, _ = stalled(served, chatty(1, N_LONG))
    try:
        gc.collect()
        assert sum(type(each) is Candidate for each in served.call(gc.get_objects)) == 0
        (request,) = served.state.requests
        # The engine goes on for a few steps until it sees the pause.
        n_unread = request.stream._unread_bytes if request.stream else 0
        assert 4 * 1024 < n_unread < 48 * 1024
    finally:
        stream.cancel()


@pytest.mark.long
def test_sch_11_output_beyond_slow_client_bytes_is_delivered_to_who_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Output beyond the limit pauses the sequences, so nothing more would come to fill a message.

    The delay that would deliver it then never ends here.
    """
    monkeypatch.setattr(GenerationStream, "_end_delay", lambda _: None)
    write = GrpcCall.write
    n_paused = 0

    async def write_until_paused(call: GrpcCall, message: Any) -> None:
        """Sends a message, which takes until the sequences are paused or have ended."""
        nonlocal n_paused
        await write(call, message)
        (request,) = small.state.requests
        while request.stream.is_open and not request.stream.is_paused:
            await asyncio.sleep(0)
        n_paused += request.stream.is_paused

    with serve("slow_client.bytes=1KiB", "slow_client.timeout=1h", model=scripted(n_blocks=500)) as small:
        request = chatty(1, 150, num_sequences=8)
        request.output.max_chunk_tokens = 1000
        request.output.max_chunk_delay.FromSeconds(10)
        unary = in_one(small, request)
        monkeypatch.setattr(GrpcCall, "write", write_until_paused)
        messages = streamed(small, request, timeout=HANGS_AFTER)
    assert [len(each.ids) for each in unary.outputs] == [150] * 8
    assert unary.outputs == messages.outputs
    assert n_paused > 8  # the first output of a sequence never waits


@pytest.mark.long
def test_sch_11_unread_candidates_take_what_they_are_counted_as() -> None:
    n_tokens = 2000
    output = OutputOptions(logprobs=True, top_logprobs=20)
    events = [token_event(20) for _ in range(10)]
    tracemalloc.start()
    try:
        held = OutputStream(0, output, None, None)
        for i in range(n_tokens):
            held.add(events[i % 10])
        n_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert n_bytes < 1.25 * n_tokens * unread_token_bytes(output, seeks_stop=False)
    chunk = held.take(64)
    assert [len(items) for items in chunk.candidates] == [20] * 64
    assert chunk.candidates[0] == [Candidate(item.token, item.logprob) for item in events[0].candidates]
    assert len(held.take(None).token_ids) == n_tokens - 64
