"""Keeps an engine process running: starts it again when it ends, ends it when it hangs, and gives it up."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Callable, Mapping
from typing import Any

from imp_service.front.relay.front import Front
from imp_service.front.relay.upstreams import Child
from imp_service.front.supervision.advances import Advances
from imp_service.front.supervision.death import Death
from imp_service.front.supervision.engine_process import EngineProcess, reap_orphans
from imp_service.front.supervision.parent import Starter
from imp_service.front.supervision.pulse import CHECK_SECONDS, HeldBack, Pulse, ask
from imp_service.front.supervision.restarts import FINAL, MOST_DEATHS, WINDOW_SECONDS, Restarts
from imp_service.telemetry.log import Log

ENGINE_LOST = 70
# A drain that lasts longer than its settings say is cut.
MARGIN_SECONDS = 5.0
# How often a drain looks for open requests, once its engine process was started again.
DRAIN_CHECK_SECONDS = 0.05

OnServing = Callable[[EngineProcess, Mapping[str, Any]], None]


class Supervisor:
    """On the event loop's thread, which must be the main thread."""

    def __init__(
        self,
        starter: Starter,
        child: Child,
        front: Front,
        log: Log,
        *,
        drain_seconds: Callable[[], float],
        on_serving: OnServing,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`starter` starts each process; `drain_seconds` how long its drain may take."""
        self._starter = starter
        self._child = child
        self._front = front
        self._log = log
        self._drain_seconds = drain_seconds
        self._on_serving = on_serving
        self._clock = clock
        self._restarts = Restarts(clock)
        self._n_restarts = 0
        self._advances = Advances()
        self._has_served = False
        self._has_to_reload = False
        # A forked process has the settings of its parent, which may be older.
        self._has_reloaded = False
        self._engine: EngineProcess | None = None
        # When the drain must be over; None: nobody asked for one.
        self._stop_at: float | None = None
        self._stopping = asyncio.Event()

    async def run(self) -> int:
        """Until stop() and the end of the drain, or until the engine is given up. Returns the exit status."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGCHLD, self._check)
        try:
            while (engine := await self._start()) is not None:
                death = await self._live(engine)
                if (status := await self._after(engine, death)) is not None:
                    return status
            return 0
        finally:
            loop.remove_signal_handler(signal.SIGCHLD)
            self._starter.close()

    def reload(self) -> None:
        """The engine process reads its settings again, once it serves: before, SIGHUP would end it."""
        self._has_to_reload = self._has_reloaded = True
        engine = self._engine
        if engine is not None and engine.has_served:
            self._has_to_reload = False
            engine.signal(signal.SIGHUP)

    def _signal(self, number: int) -> None:
        if self._engine is not None:
            self._engine.signal(number)

    def stop(self) -> None:
        """Begins a drain: the engine process drains and ends."""
        seconds = self._drain_seconds()
        self._stop_at = self._clock() + seconds
        self._front.leave()
        self._stopping.set()
        self._signal(signal.SIGTERM)
        asyncio.get_running_loop().call_later(seconds + MARGIN_SECONDS, self._signal, signal.SIGKILL)

    async def _start(self) -> EngineProcess | None:
        """The started process; None if the drain is over before."""
        while not self._has_drained():
            try:
                engine = EngineProcess(self._starter.start, self._serves, self._advances.take)
            except OSError as error:  # of fork: EAGAIN or ENOMEM
                delay = self._restarts.refused()
                self._log.warning("engine refused", message=f"no process: {error.strerror or error}", retry_after=delay)
                await self._pause(delay)
                continue
            self._restarts.started()
            self._has_to_reload = self._has_reloaded
            self._engine = engine
            return engine
        return None

    async def _live(self, engine: EngineProcess) -> Death:
        """The end of the process, which is ended if it hangs."""
        self._child.started(engine.address)
        tasks = [asyncio.create_task(self._watch(engine))]
        if self._stop_at is not None:
            tasks.append(asyncio.create_task(self._finish(engine)))
        try:
            death = await engine.ended
        finally:
            self._engine = None
            for task in tasks:
                task.cancel()
            engine.close()
        self._child.died(is_own_fault=death.is_fault)
        return death

    async def _after(self, engine: EngineProcess, death: Death) -> int | None:
        """The status with which the front ends; None: another process is started, after a pause."""
        if self._stop_at is not None and (death.status == 0 or self._has_drained()):
            return 0
        if not self._has_served and death.status in FINAL:
            return death.status  # the process has said why
        if has_advanced := self._advances.are_new():
            self._restarts.forget()
        self._starter.died(death, has_advanced=has_advanced)
        delay = self._restarts.died()
        self._n_restarts += 1
        self._front.deaths[death.cause] += 1
        how = {"status": death.status or 0} if death.signal is None else {"signal": _name(death.signal)}
        why = {"why": engine.why} if engine.why else {}
        self._log.warning("engine ended", **how, **why, restart=self._n_restarts, calls=self._front.n_open)
        if delay is None:
            text = f"more than {MOST_DEATHS} deaths in {WINDOW_SECONDS / 60:g} minutes without progress of a caller"
            self._log.error("engine lost", message=text)
            self._front.give_up()
            return ENGINE_LOST
        await self._pause(delay)
        return None

    async def _watch(self, engine: EngineProcess) -> None:
        """Asks the process every second whether it is alive, and ends it if it hangs."""
        while self._starter.is_starting:
            await asyncio.sleep(CHECK_SECONDS)
            engine.check()
            engine.look_at_memory()
            if self._starter.is_late:
                await engine.end("its parent does not fork")
        pulse = Pulse(self._clock, HeldBack(engine.pid))
        async with asyncio.TaskGroup() as asking:  # a slow process may owe several answers
            while not (why := pulse.why_hung()):
                asking.create_task(_ask(engine, pulse))
                await asyncio.sleep(CHECK_SECONDS)
                pulse.tick()
                engine.check()  # should the signal of its end be lost
                engine.look_at_memory()
            await engine.end(why)

    async def _finish(self, engine: EngineProcess) -> None:
        """Lets a process that was started during a drain answer the open requests, and then drains it too."""
        while not self._has_drained():
            await asyncio.sleep(DRAIN_CHECK_SECONDS)
        engine.signal(signal.SIGTERM)

    def _has_drained(self) -> bool:
        return self._stop_at is not None and (self._front.n_open == 0 or self._clock() >= self._stop_at)

    async def _pause(self, seconds: float) -> None:
        """Waits. A stop ends the first wait."""
        if self._stop_at is not None:
            await asyncio.sleep(min(seconds, DRAIN_CHECK_SECONDS))
            return
        try:
            async with asyncio.timeout(seconds):
                await self._stopping.wait()
        except TimeoutError:
            return

    def _serves(self, message: Mapping[str, Any]) -> None:
        assert self._engine is not None  # narrows: it has told this
        self._has_served = True
        self._on_serving(self._engine, message)
        if self._has_to_reload:
            self.reload()

    def _check(self) -> None:
        """Called when a child of this process ends."""
        engine = self._engine
        if engine is not None:
            engine.check()
        self._starter.check()
        if not self._starter.is_starting:  # the process that is being forked is not known yet
            reap_orphans({*self._starter.pids, *([] if engine is None or engine.ended.done() else [engine.pid])})


def _name(number: int) -> str:
    """The name of a signal, or its number."""
    return next((each.name for each in signal.Signals if each == number), str(number))


async def _ask(engine: EngineProcess, pulse: Pulse) -> None:
    if (answer := await ask(engine.path)) is not None:
        pulse.answered(answer, serves=engine.has_served)
