"""A call with many inputs takes its turn with others, and leaves nothing behind however it ends."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from imp_service.pb import admin_pb2
from imp_service.pb import inference_pb2 as pb
from support.calls.admin_calls import LISTENS
from support.calls.failed_calls import failed
from support.servers.served import Served, ask, serve, tokens_of
from support.servers.vector_served import POOLED, bytes_of, embed

N_MOST = 2048
# About 40 tokens each, so that all of them take many steps.
LONG = [f"{i} once upon a time there was a small house in the deep dark wood" for i in range(N_MOST)]
# Objects that Python, gRPC and the event loop may keep for a moment.
SLACK = 2000


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve(POOLED, LISTENS) as served:
        yield served


def begun(served: Served, n: int = N_MOST, **options: float) -> grpc.Future:
    """Returns a call of `n` inputs that the engine has begun."""
    call = served.inference.Embed.future(pb.EmbedRequest(texts=LONG[:n]), **options)
    served.wait_until(lambda: any(each.has_started for each in served.state.requests), "an input is evaluated")
    return call


def cancel_after(served: Served, call: grpc.Future, n_inputs: int) -> None:
    """Cancels a call when so many of its inputs have returned, or when it has ended."""
    served.wait_until(
        lambda: call.done() or any(each.n_output_tokens >= n_inputs for each in served.state.requests),
        f"{n_inputs} inputs have returned",
    )
    call.cancel()


def test_emb_5_the_largest_call_starves_nobody(served: Served) -> None:
    call = begun(served)
    began = time.monotonic()
    with ThreadPoolExecutor(8) as pool:
        others = [pool.submit(embed, served, [f"other {i}"]) for i in range(8)]
        answers = [pool.submit(lambda: tokens_of(list(served.inference.Generate(ask("the cat", 3))))) for _ in range(8)]
        assert all(len(each.result().embeddings) == 1 for each in others)
        assert all(len(each.result()) == 3 for each in answers)
    assert not call.done(), f"the others took {time.monotonic() - began:.1f} s, as long as the whole call"
    reply = call.result()
    assert len(reply.embeddings) == N_MOST
    some = random.Random(1).sample(range(N_MOST), 5)
    assert [bytes_of(reply)[i] for i in some] == bytes_of(embed(served, [LONG[i] for i in some]))


def test_emb_5_a_call_leaves_half_of_the_queue_to_others() -> None:
    """Of eight places, four other callers always find one."""
    with serve(POOLED, "scheduler.max_waiting=8", "scheduler.max_running=4") as small:
        call = begun(small, 600)
        with ThreadPoolExecutor(4) as pool:
            while not call.done():
                some = [pool.submit(embed, small, [f"other {i}"]) for i in range(4)]
                assert all(each.result() for each in some)
        assert len(call.result().embeddings) == 600


def test_emb_5_cancelling_frees_everything_within_a_step(served: Served) -> None:
    def n_handlers() -> int:
        return served.call(lambda: len(served.state.model.client._handlers))

    before = n_handlers()
    call = begun(served)
    call.cancel()
    served.wait_for_calls()
    assert n_handlers() == before, "the call has inputs in the engine"
    served.wait_for_rest()
    with pytest.raises(grpc.FutureCancelledError):
        call.result()
    assert served.stats().blocks_live == 0


def test_emb_5_two_hundred_cancelled_calls_leave_memory_flat(served: Served) -> None:
    draw = random.Random(5)

    def cancel_some(n: int) -> tuple[int, int]:
        for _ in range(n):
            n_inputs = draw.choice((3, 20, 80))
            call = served.inference.Embed.future(pb.EmbedRequest(texts=LONG[:n_inputs]))
            cancel_after(served, call, draw.choice((0, 0, 1, n_inputs // 2)))
        served.wait_for_calls()
        served.wait_for_rest()
        gc.collect()
        return len(gc.get_objects()), len(served.state.model.client._handlers)

    n_objects, n_handlers = cancel_some(20)
    found = cancel_some(200)
    assert found[1] == n_handlers
    assert found[0] < n_objects + SLACK


def test_emb_5_the_deadline_ends_a_call(served: Served) -> None:
    failure = failed(lambda: served.inference.Embed(pb.EmbedRequest(texts=LONG), timeout=0.3))
    assert failure.code == "DEADLINE_EXCEEDED"
    served.wait_for_calls()
    served.wait_for_rest()


def test_emb_5_the_servers_own_limit_ends_a_call() -> None:
    with serve(POOLED, "limits.request_time=100ms") as hurried:
        failure = failed(lambda: embed(hurried, LONG))
        assert failure.code == "DEADLINE_EXCEEDED"
        assert "limits.request_time" in failure.message
        hurried.wait_for_rest()


def test_emb_5_an_operator_sees_and_aborts_a_call(served: Served) -> None:
    admin, call = served.admin, begun(served)
    shown = admin.ListRequests(admin_pb2.ListRequestsRequest()).requests[0]
    assert (shown.running, shown.prompt_tokens > N_MOST) == (True, True)
    assert list(admin.Abort(admin_pb2.AbortRequest(all=True)).aborted_request_ids) == [shown.request_id]
    assert failed(call.result).code == "CANCELLED"
    served.wait_for_rest()


def test_emb_5_a_drain_lets_a_call_end() -> None:
    with serve(POOLED, LISTENS) as leaving:
        call = begun(leaving, 500)
        last = list(leaving.admin.Drain(admin_pb2.DrainRequest()))[-1]
        assert last.drained
        assert len(call.result().embeddings) == 500
        assert failed(lambda: embed(leaving, ["a"])).reason == "DRAINING"
        leaving.admin.Resume(admin_pb2.ResumeRequest())


def test_emb_4_the_log_and_the_metrics_count_inputs_and_tokens(served: Served) -> None:
    before = [served.metric(f"imp_embedded_{what}_total") for what in ("inputs", "tokens")]
    begin = served.log_bytes
    reply = embed(served, ["a", "b c", "d"])
    served.wait_for_calls()
    after = [served.metric(f"imp_embedded_{what}_total") for what in ("inputs", "tokens")]
    assert [b - a for a, b in zip(before, after, strict=True)] == [3, reply.usage.prompt_tokens]

    def lines() -> list[str]:
        return [line for line in served.log_lines(begin) if "InferenceService/Embed" in line]

    served.wait_until(lambda: bool(lines()), "the call is in the log")
    assert "inputs=3" in lines()[0] or '"inputs":3' in lines()[0].replace(" ", "")
    assert reply.timings.prefill.ToNanoseconds() > 0
