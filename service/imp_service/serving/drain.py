"""The drain of a server: it becomes not ready, then refuses new work, then waits for requests, then ends them.

It does not wait for requests whose callers go on elsewhere: it ends them when it begins to refuse new work.
"""

from __future__ import annotations

import asyncio

from imp_service.config.server_settings import DrainSettings
from imp_service.serving.lifecycle import Lifecycle, Phase, draining
from imp_service.serving.refusal import Refusal
from imp_service.serving.running_calls import RunningCalls
from imp_service.telemetry.log import Log

# For calls that are ended: their clean-up takes a step of the engine.
ENDING_SECONDS = 2.0


def cut_short() -> Refusal:
    """The error of requests that outlast the grace."""
    return Refusal("DRAINING", "the server is stopping before this request was done", retry_after=0.0)


def elsewhere() -> Refusal:
    """The error of requests whose callers go on with another server."""
    return Refusal("DRAINING", "the server is stopping: another one goes on with this request", retry_after=0.0)


class Drain:
    """Begun by a signal or by AdminService.Drain; there is at most one. On the event loop's thread."""

    def __init__(self, settings: DrainSettings, lifecycle: Lifecycle, calls: RunningCalls, log: Log) -> None:
        self.follow(settings)
        self._log = log
        self._lifecycle = lifecycle
        self._calls = calls
        self._task: asyncio.Task[None] | None = None
        # Times of the loop's clock: when new work is refused, and when the remaining requests are ended.
        self._closes_at = self._ends_at = 0.0
        self._is_final = False

    def follow(self, settings: DrainSettings) -> None:
        """Sets the delay and the grace of the next drain. One that has begun keeps its own."""
        self._delay = settings.delay.total_seconds()
        self._grace = settings.grace.total_seconds()

    @property
    def is_drained(self) -> bool:
        """New work is refused, and no request is left."""
        return self._task is not None and self._task.done() and self._calls.n_requests == 0

    def begin(self, grace: float | None = None, *, is_final: bool = False) -> None:
        """Begins a drain, or joins the one that runs; `grace` (seconds) can shorten that one, not extend it.

        A final drain, such as a signal asks for, cannot be resumed.
        """
        self._is_final = self._is_final or is_final
        seconds = self._grace if grace is None else grace
        now = asyncio.get_running_loop().time()
        if self._task is None:
            self._lifecycle.become(Phase.LEAVING)
            self._closes_at = now + self._delay
            self._log.info(
                "draining",
                message="not ready: new calls are accepted during drain.delay, then running calls have drain.grace",
                delay=self._delay,
                grace=seconds,
                requests=self._calls.n_requests,
            )
            self._ends_at = self._closes_at + seconds
        elif not self._task.done() and max(now, self._closes_at) + seconds < self._ends_at:
            self._task.cancel()
            self._ends_at = max(now, self._closes_at) + seconds
        else:
            return
        self._task = asyncio.get_running_loop().create_task(self._run(), name="drain")

    def resume(self) -> None:
        """Ends the drain: new calls are accepted again.

        Without a drain nothing changes; a final one raises DRAINING.
        """
        if self._is_final:
            raise draining()
        if self._task is not None:
            self._task.cancel()
            self._task = None
            self._lifecycle.resume()
            self._log.info("resumed", message="new calls are accepted again")

    async def wait(self) -> None:
        """Returns when no drain runs: it is over, or was resumed."""
        while (task := self._task) is not None and not task.done():
            await asyncio.wait((task,))

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        if loop.time() < self._closes_at:
            await asyncio.sleep(self._closes_at - loop.time())
        self._lifecycle.become(Phase.DRAINING)
        self._calls.end_those_that_go_on(elsewhere())
        try:
            async with asyncio.timeout_at(self._ends_at):
                await self._calls.wait_until_idle()
        except TimeoutError:
            n_cut = self._calls.n_requests
            await self._calls.end_requests(cut_short(), within=ENDING_SECONDS)
        else:
            n_cut = 0
        self._log.info("drained", message="no new calls are accepted, and none is running", ended_by_grace=n_cut)
