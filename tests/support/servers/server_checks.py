"""Checks the invariants G1 to G10 of docs/faults.md, which hold for a server after every test."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from imp_service.pb import inference_pb2_grpc
from imp_service.serving.lifecycle import Phase
from support.calls.status_checker import SECRET, leaks_in
from support.calls.stream_checker import StreamViolation
from support.calls.wire import ask, tokens_of
from support.run.patience import HANGS_AFTER
from support.servers.served_models import Canary, ServedModel

if TYPE_CHECKING:
    from support.servers.served import Served

Metadata = tuple[tuple[str, str], ...]
# The number of canary tokens that are generated after a test.
N_CANARY = 6
# docs/faults.md demands 250 ms; a busy test machine may be slower.
REST_SECONDS = HANGS_AFTER / 2


@dataclass(frozen=True)
class Level:
    """The resources that a server holds while nothing runs."""

    sessions: int = 0
    blocks_live: int = 0
    log_bytes: int = 0  # length of the log so far

    @classmethod
    def of(cls, served: Served) -> Level:
        """Returns the current level."""
        stats = served.stats()
        return cls(stats.sessions, stats.blocks_live, served.log_bytes)


def problems_of(served: Served, before: Level) -> list[str]:
    """Returns the problems of a serving server as texts; runs the canary last."""
    if not is_well(served):
        return []
    found = [*rest_problems(served, before), *canary_problems(served), *count_problems(served)]
    return [*found, *log_problems(served.log_lines(before.log_bytes))]


def last_problems_of(served: Served) -> list[str]:
    """Returns the problems of a server that is about to stop: only sessions may hold blocks."""
    now = Level.of(served)
    if not now.sessions:
        return problems_of(served, Level())
    return rest_problems(served, Level(now.sessions, now.blocks_live)) if is_well(served) else []


def is_well(served: Served) -> bool:
    """Returns whether the server serves and the test has not broken it on purpose."""
    return served.is_checked and served.call(lambda: served.state.lifecycle.phase) is Phase.SERVING


def rest_problems(served: Served, before: Level) -> list[str]:
    """Returns resources that are not freed in time (G3). Expires sessions that the test left open first."""
    if not before.sessions and served.stats().sessions:
        served.jump(served.state.settings.sessions.max_ttl.total_seconds())
    give_up = time.monotonic() + REST_SECONDS
    while found := served.call(lambda: _unrest(served, before)):
        if time.monotonic() > give_up:
            return [f"G3: {found}"]
    return []


def _unrest(served: Served, before: Level) -> str:
    stats = served.state.model.client.engine.stats()
    busy = {"running": stats.running, "waiting": stats.waiting, "waiting_tokens": stats.waiting_tokens}
    now = Level(stats.sessions, stats.blocks_live, before.log_bytes)
    left = {name: n for name, n in busy.items() if n}
    total = stats.blocks_live + stats.blocks_cached + stats.blocks_free
    if now == before and not left and total == served.n_blocks:
        return ""
    return f"{left} left, {now} where it was {before}, {total} blocks of {served.n_blocks}"


def canary_problems(served: Served) -> list[str]:
    """Returns a problem if a new request does not generate the known tokens (G2, G10)."""
    canary = served.model.canary
    if canary is None:
        return []
    stub = inference_pb2_grpc.InferenceServiceStub(served.canary_channel)
    try:
        messages = list(stub.Generate(ask(canary.prompt_ids, N_CANARY), metadata=served.metadata, timeout=HANGS_AFTER))
    except (grpc.RpcError, StreamViolation) as error:
        return [f"G10: a fresh request failed: {error}"]
    found = tokens_of(messages)
    return [] if found == list(canary.output_ids[:N_CANARY]) else [f"G2: the canary generated {found}"]


def count_problems(served: Served) -> list[str]:
    """Returns a problem if the counts of started and ended requests differ although none is active (G8)."""
    metrics = served.state.telemetry.metrics.registry

    def counts() -> tuple[float, float, float]:
        samples = [sample for family in metrics.collect() for sample in family.samples]
        begun, ended, active = (
            sum(sample.value for sample in samples if sample.name == name)
            for name in ("imp_requests_started_total", "imp_requests_ended_total", "imp_requests_active")
        )
        return begun, ended, active

    give_up = time.monotonic() + REST_SECONDS
    while True:
        begun, ended, active = served.call(counts)
        if (begun, active) == (ended, 0):
            return []
        if time.monotonic() > give_up:
            return [f"G8: {begun} requests began, {ended} ended, {active} are active"]


def log_problems(lines: Sequence[str]) -> list[str]:
    """Returns forbidden texts in a log (G6); an error's line may name its place in the source."""
    return [
        f"G6: {leaked} in the log: {line}"
        for line in lines
        if (leaked := leaks_in(line)) and (SECRET in leaked or '"level": "error"' not in line)
    ]


class CanaryLoop:
    """Generates the canary again and again in a thread and compares its tokens with the golden ones (G2)."""

    def __init__(
        self, model: ServedModel, channel: grpc.Channel, metadata: Metadata = (), rest_seconds: float = 0.0
    ) -> None:
        """Starts the loop. It waits `rest_seconds` after each run and sends `metadata` with its calls."""
        assert model.canary is not None, "the model has no canary"
        self._canary: Canary = model.canary
        self._stub = inference_pb2_grpc.InferenceServiceStub(channel)
        self._metadata = (*metadata, ("imp-priority", "100"), ("imp-tenant", "canary"))
        self._rest_seconds = rest_seconds
        self._is_over = threading.Event()
        self._has_run = threading.Event()
        self.n_runs = 0
        self.problems: list[str] = []
        self._thread = threading.Thread(target=self._run, name="canary")
        self._thread.start()

    def _run(self) -> None:
        while not (self._is_over.is_set() and self.n_runs) and not self.problems:
            try:
                self._once()
            except (grpc.RpcError, StreamViolation) as error:
                self.problems.append(f"G2: the canary's stream failed: {error}")
            self._is_over.wait(self._rest_seconds)

    def _once(self) -> None:
        expected = list(self._canary.output_ids)
        request: Any = ask(self._canary.prompt_ids, len(expected))
        request.stop.ignore_eos = True
        found = tokens_of(list(self._stub.Generate(request, metadata=self._metadata, timeout=HANGS_AFTER)))
        self.n_runs += 1
        self._has_run.set()
        if found != expected:
            self.problems.append(f"G2: the canary generated {found}")

    def wait_for(self, n_more: int) -> None:
        """Waits until it has run `n_more` more times or has found a problem."""
        wanted = self.n_runs + n_more
        give_up = time.monotonic() + HANGS_AFTER
        while self.n_runs < wanted and not self.problems:
            assert time.monotonic() < give_up, "the canary does not finish"
            self._has_run.wait(0.1)
            self._has_run.clear()

    def stop(self) -> None:
        """Stops after the current run; there is at least one."""
        self._is_over.set()
        self._thread.join()


@dataclass(frozen=True)
class Holdings:
    """The descriptors and threads of this process."""

    descriptors: dict[str, int]
    threads: list[str]

    @classmethod
    def now(cls) -> Holdings:
        """Returns the current descriptors by kind and Python's threads by name."""
        kinds: dict[str, int] = {}
        for entry in Path("/proc/self/fd").iterdir():
            try:
                kind = str(entry.readlink()).split(":[")[0]
            except FileNotFoundError:
                continue  # the descriptor of the listing itself
            kinds[kind] = kinds.get(kind, 0) + 1
        return cls(kinds, sorted(thread.name for thread in threading.enumerate()))


def left_since(before: Holdings) -> list[str]:
    """Returns the descriptors and threads that are not released in time (G4)."""
    give_up = time.monotonic() + REST_SECONDS
    while True:
        gc.collect()
        now = Holdings.now()
        more = {kind: n for kind, n in now.descriptors.items() if n > before.descriptors.get(kind, 0)}
        threads = list((Counter(now.threads) - Counter(before.threads)).elements())
        if not more and not threads:
            return []
        if time.monotonic() > give_up:
            return [f"G4: descriptors {before.descriptors} became {now.descriptors}, threads {threads} are new"]
