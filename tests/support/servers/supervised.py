"""A supervisor in the loop of a test, whose engine processes are stand-ins."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import Any

from imp_service.config.server_settings import LogSettings
from imp_service.front.supervision.parent import Starter
from imp_service.front.supervision.supervisor import Supervisor
from imp_service.telemetry.log import Log
from support.run.patience import HANGS_AFTER
from support.run.pauses import pause_loop
from support.servers import stand_in_engine


class StandInFront:
    """What a supervisor tells the relayed calls, and asks them."""

    def __init__(self) -> None:
        self.n_open = 0
        self.deaths = Counter[str]()
        self.told: list[str] = []
        # Of each death: whether it was the process's own fault.
        self.faults: list[bool] = []

    def started(self, address: str) -> None:
        """A process listens there."""
        self.told.append("started")

    def died(self, *, is_own_fault: bool) -> None:
        """It has ended."""
        self.faults.append(is_own_fault)
        self.told.append("died")

    def leave(self) -> None:
        """The front is not ready."""
        self.told.append("leave")

    def give_up(self) -> None:
        """There will be no process any more."""
        self.told.append("give up")


class Supervised:
    """One supervisor. Its process of life n follows plan n; further lives follow the last plan."""

    def __init__(self, plans: Sequence[str], log: Log, errors: Path, drain_seconds: float) -> None:
        self.plans = plans
        self.front = StandInFront()
        self.n_starts = 0
        self.pids: list[int] = []
        self._errors = errors
        self.supervisor = Supervisor(
            Starter(self._command, log),
            self.front,  # type: ignore[arg-type]
            self.front,  # type: ignore[arg-type]
            log,
            drain_seconds=lambda: drain_seconds,
            on_serving=lambda engine, _: self.pids.append(engine.pid),
        )
        self.task = asyncio.create_task(self.supervisor.run())

    def _command(self, listening: int, link: int) -> list[str]:
        plan = self.plans[min(self.n_starts, len(self.plans) - 1)]
        self.n_starts += 1
        return [sys.executable, "-I", "-S", str(stand_in_engine.__file__), plan, str(listening), str(link)]

    async def until(self, holds: Callable[[], bool], what: str) -> None:
        """Waits until it holds; fails if the supervisor ends first."""
        give_up = time.monotonic() + HANGS_AFTER
        while not holds():
            assert time.monotonic() < give_up and not self.task.done(), f"{what}: {self.errors}"
            await pause_loop()

    async def serving(self, n: int) -> int:
        """The number of the nth process that serves, once it does."""
        await self.until(lambda: len(self.pids) >= n, f"life {n} serves")
        return self.pids[n - 1]

    async def status(self) -> int:
        """The status with which the supervisor ends."""
        return await asyncio.wait_for(self.task, HANGS_AFTER)

    @property
    def errors(self) -> str:
        """What was written to stderr so far."""
        return self._errors.read_text()

    async def lines(self, event: str, n: int) -> list[dict[str, Any]]:
        """The lines of the log about this event, once there are `n`: a thread writes them."""
        give_up = time.monotonic() + HANGS_AFTER
        while True:
            found = [json.loads(line) for line in self.errors.splitlines() if line.startswith("{")]
            found = [line for line in found if line["event"] == event]
            if len(found) >= n:
                return found
            assert time.monotonic() < give_up, f"no {n} lines {event}: {self.errors}"
            await pause_loop()


@contextlib.asynccontextmanager
async def supervised(*plans: str, drain_seconds: float = 30.0) -> AsyncIterator[Supervised]:
    """Supervises stand-ins within the block. What they and the log write goes to a file."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "stderr")
        with path.open("ab") as file, _stderr(file.fileno()):
            log = Log(LogSettings(format="json", max_lines_per_second=1000), file.fileno())
            found = Supervised(plans, log, path, drain_seconds)
            try:
                yield found
            finally:
                found.task.cancel()
                await asyncio.wait((found.task,))
                log.close()


@contextlib.contextmanager
def _stderr(descriptor: int) -> Any:
    """Within the block, what children write goes there."""
    kept = os.dup(2)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
