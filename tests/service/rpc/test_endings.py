"""Requests that end in every possible way: each has one ending, and the cache returns to its state before."""

import random
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from imp_service.api.options import GenerationRequest
from imp_service.pb.admin_pb2 import AbortRequest
from imp_service.serving import generation_runner
from imp_service.serving.generation_runner import outbox_limits
from imp_service.serving.generation_stream import OutboxLimits
from support.calls.endings import SLOW_TENANT, Ending, Endings
from support.calls.known_outputs import known_outputs
from support.run.quick_run import Repeats
from support.run.release_run import repetitions
from support.servers.served import Served, serve

N_REQUESTS = repetitions(2000, 280)
N_CLIENTS = 12
# A drain ends all other requests: with more drains the test would see no other endings.
DRAINED_EVERY = 20
WHOLE = "OK FINISH_REASON_MAX_TOKENS"
DRAINING = "UNAVAILABLE DRAINING"
SLOW = "RESOURCE_EXHAUSTED SLOW_CLIENT"
# The ending that gives each way its name. A request that finishes first is complete. A drain can end any request.
OWN = {
    "finished": WHOLE,
    "unary": WHOLE,
    "cancelled": "CANCELLED",
    "deadline": "DEADLINE_EXCEEDED",
    "dropped": "CANCELLED",
    "slow": SLOW,
    "aborted": "OK FINISH_REASON_ABORTED",
    "drained": DRAINING,
}
# A request is refused at once if its deadline is shorter than the wait in the queue.
OTHERS = {"deadline": {"RESOURCE_EXHAUSTED QUEUE_FULL"}}


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    settings = ("slow_client.bytes=1KiB", "slow_client.timeout=1h", "kv.bytes=32MiB", "listen.admin=127.0.0.1:0")
    with pytest.MonkeyPatch.context() as patch, serve(*settings) as server:
        patch.setattr(generation_runner, "outbox_limits", hurry_who_stops_reading)
        yield server


def hurry_who_stops_reading(request: GenerationRequest, *arguments: Any) -> OutboxLimits:
    """Returns the limits of a request, with a short timeout for a client that stops reading on purpose."""
    limits = outbox_limits(request, *arguments)
    return replace(limits, timeout=0.05) if request.tenant == SLOW_TENANT else limits


def drain(served: Served, grace: float) -> None:
    """Drains the server with `grace`, then resumes it."""
    drain = served.state.drain
    served.call(lambda: drain.begin(grace))
    served.wait_until(lambda: drain.is_drained, "drained")
    served.call(drain.resume)


def test_p5_every_request_ends_once_and_leaves_nothing(served: Served, repeats: Repeats) -> None:
    n_requests = repeats(N_REQUESTS)
    known = known_outputs(24, 5)
    one_drain = threading.Lock()
    admin = served.admin

    def abort(request_id: str) -> None:
        admin.Abort(AbortRequest(request_ids=[request_id]))

    def end(number: int, way: str = "") -> Ending:
        rng = random.Random(number)

        def drain_once() -> None:
            with one_drain:
                drain(served, rng.choice((0.0, 0.01)))

        ways = Endings(served.connection, rng, abort=abort, drain=drain_once).ways
        names = [name for name in ways if name != "drained"]
        chosen = "drained" if number % DRAINED_EVERY == 0 else names[number % len(names)]
        return ways[way or chosen](rng.choice(known))

    begun = served.metric("imp_requests_started_total")
    with ThreadPoolExecutor(N_CLIENTS) as pool:
        found = list(pool.map(end, range(n_requests)))
    # Each way must reach its own ending at least once. On a busy machine other endings may have come first so far.
    missing = {way for way, own in OWN.items() if own not in {each.status for each in found if each.way == way}}
    while missing and len(found) < 2 * N_REQUESTS:
        way = min(missing)
        found.append(end(len(found), way))
        if found[-1].status == OWN[way]:
            missing.remove(way)
    served.wait_for_rest()
    served.wait_for_calls()
    seen = Counter((ending.way, ending.status) for ending in found)
    print(*sorted(seen.items()), sep="\n")
    assert [ending for ending in found if not ending.is_right] == []
    allowed = {way: {own, WHOLE, DRAINING} | OTHERS.get(way, set()) for way, own in OWN.items()}
    assert [ending for ending in found if ending.status not in allowed[ending.way]] == []
    assert missing == set()
    # The server counts each request once, except those that ended before they reached it. G3 and G8 check the rest.
    n_unseen = sum(ending.code in ("DEADLINE_EXCEEDED", "CANCELLED") and not ending.n_tokens for ending in found)
    assert len(found) - n_unseen <= served.metric("imp_requests_started_total") - begun <= len(found)
