"""The mixed load of the soak: clients that end requests in every way, at a given rate, and check each ending."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import grpc

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.calls.endings import Connect, Ending, Endings, status_of
from support.calls.known_outputs import Known
from support.run.patience import HANGS_AFTER

WHOLE = "OK FINISH_REASON_MAX_TOKENS"
SLOW = "RESOURCE_EXHAUSTED SLOW_CLIENT"
# The status of a session whose client was away for longer than its lease.
EXPIRED = "NOT_FOUND SESSION_EXPIRED"
# The possible results of each way to end a request. A request that finishes first is complete. The limits for slow
# clients are so small that any client may exceed them on a busy machine.
ALLOWED = {
    "finished": {WHOLE, SLOW},
    "unary": {WHOLE},
    "cancelled": {"CANCELLED", WHOLE, SLOW},
    "deadline": {"DEADLINE_EXCEEDED", "RESOURCE_EXHAUSTED QUEUE_FULL", WHOLE, SLOW},
    "dropped": {"CANCELLED", WHOLE, SLOW},
    "slow": {SLOW, WHOLE},
    "session": {"OK", EXPIRED},
    "abandoned": {"OK"},
}
# The status of clients behind the proxy that cuts connections.
LOST = "UNAVAILABLE"


class Pace:
    """A rate of requests per second over all clients."""

    def __init__(self, per_second: float, stop: threading.Event) -> None:
        self._interval = 1 / per_second
        self._lock = threading.Lock()
        self._next = time.monotonic()
        self._stop = stop

    def wait(self) -> bool:
        """Waits for this client's turn; returns False after the end."""
        with self._lock:
            self._next = max(self._next + self._interval, time.monotonic() - self._interval)
            turn = self._next
        return not self._stop.wait(max(0.0, turn - time.monotonic()))


class SessionEndings:
    """Sessions that step to a known output, and sessions that their clients abandon."""

    def __init__(self, connect: Connect, lease_seconds: float) -> None:
        self._connect = connect
        self._lease_seconds = lease_seconds

    def session(self, known: Known) -> Ending:
        """Opens a session, steps it and releases it."""
        return self._run("session", known, min(8, len(known.token_ids)), is_released=True)

    def abandoned(self, known: Known) -> Ending:
        """Opens a session and lets its lease expire."""
        return self._run("abandoned", known, 1, is_released=False)

    def _run(self, way: str, known: Known, n_tokens: int, *, is_released: bool) -> Ending:
        found: list[int] = []
        used = time.monotonic()
        with self._connect() as channel:
            stub = InferenceServiceStub(channel)
            try:
                prompt = types_pb2.TokenIds(ids=known.request.token_ids.ids)
                reply = stub.Prefill(pb.PrefillRequest(token_ids=prompt, sampling=known.request.sampling))
                found.append(reply.output.token_id)
                while len(found) < n_tokens:
                    step = pb.SessionStep(session_id=reply.session_id)
                    sent = time.monotonic()
                    (result,) = stub.DecodeStep(pb.DecodeStepRequest(steps=[step])).results
                    found.append(result.output.token_id)
                    used = sent
                if is_released:
                    stub.ReleaseSession(pb.ReleaseSessionRequest(session_id=reply.session_id))
            except grpc.RpcError as error:
                status = status_of(error)
                # A busy machine may delay a client until its lease is over; before that, the session must not expire.
                may_be = " ".join(status) != EXPIRED or time.monotonic() - used >= self._lease_seconds
                return Ending(way, *status, "", len(found), may_be and known.begins_with(found))
        return Ending(way, "OK", "", "", len(found), known.begins_with(found))


@dataclass(frozen=True)
class Route:
    """A way to reach the server; if `is_cut`, the connections break now and then."""

    connect: Connect
    is_cut: bool
    lease_seconds: float  # lease of the server's sessions


class Client:
    """A thread that makes requests until it must stop."""

    def __init__(
        self, number: int, route: Route, known: Sequence[Known], pace: Pace, note: Callable[[Ending], None]
    ) -> None:
        self._rng = random.Random(number)
        self._known = known
        self._pace = pace
        self._route = route
        self._note = note
        connect = route.connect
        sessions = SessionEndings(connect, route.lease_seconds)
        ways = Endings(connect, self._rng).ways
        self._ways = [*ways.values(), sessions.session, sessions.session, sessions.abandoned]
        self.problems: list[str] = []
        self._thread = threading.Thread(target=self._work, name=f"client-{number}")
        self._thread.start()

    def _work(self) -> None:
        while self._pace.wait():
            try:
                ending = self._rng.choice(self._ways)(self._rng.choice(self._known))
            except AssertionError as violation:
                self.problems.append(str(violation))
                continue
            self._judge(ending)

    def _judge(self, ending: Ending) -> None:
        self._note(ending)
        if not ending.is_right:
            self.problems.append(f"wrong tokens: {ending}")
        was_cut = self._route.is_cut and ending.status == LOST
        if ending.status not in ALLOWED[ending.way] and not was_cut:
            self.problems.append(f"unexpected status: {ending}")

    def join(self) -> None:
        """Waits for the thread; call it after the pace has stopped."""
        self._thread.join()


class Load:
    """All clients, distributed over the routes."""

    def __init__(self, routes: Sequence[Route], known: Sequence[Known], *, n_clients: int, per_second: float) -> None:
        self._stop = threading.Event()
        self._noted = threading.Condition()
        self.seen: Counter[str] = Counter()
        pace = Pace(per_second, self._stop)
        self._clients = [Client(i, routes[i % len(routes)], known, pace, self._note) for i in range(n_clients)]

    def _note(self, ending: Ending) -> None:
        with self._noted:
            self.seen[f"{ending.way}: {ending.status}"] += 1
            self._noted.notify_all()

    def wait_for(self, n: int) -> None:
        """Waits until `n` requests have ended."""
        with self._noted:
            assert self._noted.wait_for(lambda: self.seen.total() >= n, HANGS_AFTER), f"{self.seen.total()} requests"

    def stop(self) -> list[str]:
        """Ends all clients, each after its current request; returns the problems."""
        self._stop.set()
        for client in self._clients:
            client.join()
        return [problem for client in self._clients for problem in client.problems]
