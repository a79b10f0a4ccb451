"""Two tenants share a server whose engine is the bottleneck. The test makes and counts single steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import pytest

from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.calls.failed_calls import failed
from support.servers.gate import ALL_STEPS, HELD, Gate, gate
from support.servers.served import Served, ask, serve

N_STEPS = 40
EACH = 12  # scheduler.decode_per_tenant


@contextmanager
def held_server(*settings: str) -> Iterator[tuple[Served, Gate]]:
    with gate() as held:
        model = held.model("table", [HELD], max_context=512, n_blocks=8000)
        with serve("kv.prefix_cache=false", *settings, model=model) as served:
            yield served, held
            held.open(ALL_STEPS)
            served.wait_for_rest()


def begin(served: Served, tenant: str, n: int, channel: grpc.Channel | None = None) -> list[Any]:
    """Starts `n` endless generations of one tenant, or of a connection, and waits until they are admitted."""
    n_before = served.call(lambda: len(served.state.requests))
    metadata = (("imp-tenant", tenant),) if tenant else ()
    stub = served.inference if channel is None else InferenceServiceStub(channel)
    calls = [stub.Generate(ask([HELD, HELD], None), metadata=metadata) for _ in range(n)]
    served.wait_until(lambda: len(served.state.requests) == n_before + n, "all are admitted")
    return calls


def told(served: Served) -> Counter[str]:
    """Returns the number of tokens of each tenant so far."""

    def count() -> Counter[str]:
        served.state.model.client.dispatch()
        total: Counter[str] = Counter()
        for request in served.state.requests:
            total[request.tenant] += request.n_output_tokens
        return total

    return served.call(count)


def all_have_begun(served: Served) -> bool:
    served.call(served.state.model.client.dispatch)
    return served.call(lambda: all(request.n_output_tokens > 0 for request in served.state.requests))


def step(held: Gate, n_steps: int) -> None:
    for _ in range(n_steps):
        held.open()
        held.wait()


@pytest.mark.long
def test_sch_3_sch_7_one_generation_beside_sixty_of_another_tenant_has_short_steps() -> None:
    """It gets a token in every step. The 60 generations have 23 rows in each step that is not its own."""
    with held_server() as (served, held):
        calls = begin(served, "b", 1)
        held.wait()
        calls += begin(served, "a", 60)
        while not all_have_begun(served):
            step(held, 8)
        before = told(served)
        step(held, N_STEPS)
        found = told(served) - before
        assert found["b"] == N_STEPS
        n_shared, rest = divmod(found["a"], 2 * EACH - 1)
        assert (rest, found.keys()) == (0, {"a", "b"})
        assert 1 <= n_shared <= N_STEPS
        for call in calls:
            call.cancel()


@pytest.mark.long
def test_sch_7_a_tenant_that_finds_every_place_taken_begins_at_once() -> None:
    with held_server("scheduler.max_running=16") as (served, held):
        calls = begin(served, "a", 40)
        held.wait()
        step(held, 4)
        assert set(told(served)) == {"a"}
        calls += begin(served, "b", 2)
        step(held, 4)
        assert told(served)["b"] >= 2
        for call in calls:
            call.cancel()


@pytest.mark.parametrize("named", [True, False], ids=["by tenant", "by connection"])
def test_sch_7_a_caller_that_fills_the_queue_keeps_nobody_out(named: bool) -> None:
    """Without a name, callers are told apart by their connections."""
    one, other = ("a", "b") if named else ("", "")
    metadata = (("imp-tenant", "a"),) if named else ()
    with held_server("scheduler.max_running=1", "scheduler.max_waiting=4") as (served, held):
        first, second = served.channel(), served.channel()
        calls = begin(served, one, 1, first)
        held.wait()
        calls += begin(served, one, 4, first)
        refused = InferenceServiceStub(first).Generate(ask([HELD], 1), metadata=metadata)
        assert failed(lambda: list(refused)).reason == "QUEUE_FULL"
        late = begin(served, other, 2, second)
        step(held, 6)
        # It has tokens now. The generations before it would take a thousand steps.
        served.call(served.state.model.client.dispatch)
        assert served.call(lambda: list(served.state.requests)[5].n_output_tokens) > 0
        for call in [*calls, *late]:
            call.cancel()
