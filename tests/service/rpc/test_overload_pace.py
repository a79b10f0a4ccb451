"""How regularly a stream of the highest priority gets its tokens during extreme overload (G7).

The unit is the engine's step. A test makes each step, so a busy machine changes nothing.
"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

from imp_service.pb import inference_pb2 as pb
from support.calls.status_details import read_details
from support.servers.gate import ALL_STEPS, HELD, Gate, gate
from support.servers.served import Served, ask, serve

N_STEPS = 200
CANARY = "canary"


def p99(gaps: list[int]) -> int:
    """Returns the 99th percentile over steps, where a gap counts once per step: at least the percentile over tokens."""
    gap_of_step = sorted(gap for gap in gaps for _ in range(gap))
    return gap_of_step[math.ceil(0.99 * len(gap_of_step)) - 1]


class Load:
    """Each `add` brings three more requests: a long answer, a long prompt, and one cancelled before its only token."""

    def __init__(self, served: Served, priority: int) -> None:
        self._served = served
        self._stub = served.inference
        self._metadata = (("imp-priority", str(priority)),)
        self._calls: list[Any] = []

    def add(self) -> None:
        """Adds three requests and waits until each is admitted or refused. All their tokens stop the engine."""
        for n_prompt, n_tokens in ((3, 100), (200, 2), (5, 1)):
            request = pb.GenerateUnaryRequest(request=ask([HELD] * n_prompt, n_tokens))
            self._calls.append(self._stub.GenerateUnary.future(request, metadata=self._metadata))
        self._calls[-1].cancel()
        here = self._served.state.requests
        self._served.wait_until(lambda: len(here) > sum(not call.done() for call in self._calls), "all judged")

    def reasons(self) -> set[str]:
        """Cancels all requests. Returns the outcomes of those that had been answered."""
        done = [call for call in self._calls if call.done() and not call.cancelled()]
        for call in self._calls:
            call.cancel()
        return {read_details(call.trailing_metadata()).reason if call.exception() else "OK" for call in done}


def gaps_of_canary(served: Served, held: Gate, load: Load | None) -> list[int]:
    """Returns the steps between the canary's tokens, and to the end, over N_STEPS steps."""
    client = served.state.model.client

    def n_tokens() -> int:
        client.dispatch()
        return sum(each.n_output_tokens for each in served.state.requests if each.request_id == CANARY)

    came, n_seen = [0], 0
    for step in range(1, N_STEPS + 1):
        if load is not None and step % 4 == 1:
            load.add()
        held.open()
        held.wait()  # the next step is stopped: the token of this one has been delivered
        n = served.call(n_tokens)
        came += [step] * (n - n_seen)
        n_seen = n
    assert n_seen > 0
    return [after - before for before, after in pairwise([*came, N_STEPS + 1])]


def pace(priority: int, others: int | None, **engine: Any) -> tuple[int, set[str]]:
    """Returns the canary's p99, alone or under a load of another priority, and the load's outcomes."""
    limits = ("max_running=8", "max_waiting=16", "tenant_share=1")
    settings = (*(f"scheduler.{limit}" for limit in limits), "kv.prefix_cache=false")
    with gate() as held, serve(*settings, model=held.model("table", [HELD], max_context=256, **engine)) as served:
        load = None if others is None else Load(served, others)
        metadata = (("imp-priority", str(priority)), ("imp-tenant", CANARY))
        stream = served.inference.Generate(ask([HELD], None, request_id=CANARY), metadata=metadata)
        held.wait()
        found = p99(gaps_of_canary(served, held, load))
        stream.cancel()
        reasons = set() if load is None else load.reasons()
        held.open(ALL_STEPS)
        served.wait_for_rest()
    return found, reasons


def test_g7_the_canary_keeps_its_pace_under_a_tenfold_overload() -> None:
    alone, _ = pace(100, None)
    beside, reasons = pace(100, 0)
    assert {"OK", "QUEUE_FULL"} <= reasons
    assert beside <= 2 * alone


def test_g7_a_canary_of_lower_priority_is_slowed() -> None:
    """The control: the same load with a higher priority, which needs the canary's blocks."""
    alone, _ = pace(0, None, n_blocks=18)
    beside, _ = pace(0, 100, n_blocks=18)
    assert beside > 2 * alone
