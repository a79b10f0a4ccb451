"""A request that ends the engine process each time: it is found among others, and it alone ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from collections.abc import AsyncIterator

import pytest

from imp_service.front.relay.admission import MAX_REFUSED, REFUSED_SECONDS, Turns
from imp_service.front.relay.upstreams import Child
from imp_service.front.supervision.death import Death
from support.run.pauses import pause_loop
from support.run.quick_run import Repeats
from support.servers.front_served import FrontServed, Got, front_served
from support.servers.scripted_engine import EVENTS, Asked, Peer, ScriptedEngine, golden, units

N = 24


class Process:
    """An engine process that a supervisor starts again when it ends. Some requests end it."""

    def __init__(self) -> None:
        self.n_deaths = 0
        self.is_alive = False
        self.engine = ScriptedEngine(self.answer)
        self.child: Child | None = None
        self.restarting: set[asyncio.Task[None]] = set()

    async def start(self) -> None:
        """Starts one at a new address."""
        assert self.child is not None  # narrows
        self.engine = ScriptedEngine(self.answer)
        await self.engine.start()
        self.is_alive = True
        self.child.started(self.engine.address)

    def die(self, *, is_own_fault: bool = True) -> None:
        """The process ends, unless it has just ended."""
        if not self.is_alive:
            return
        assert self.child is not None  # narrows
        self.is_alive = False
        self.n_deaths += 1
        self.engine.kill()
        self.child.died(is_own_fault=is_own_fault)
        task = asyncio.get_running_loop().create_task(self.start())
        self.restarting.add(task)
        task.add_done_callback(self.restarting.discard)

    async def answer(self, asked: Asked, peer: Peer) -> None:
        """Answers with a stream, or dies at the token that the request says."""
        engine = self.engine
        kills_at = asked.fields.get("kills_at")
        if not asked.fields.get("stream"):
            await pause_loop(0.05)
            await peer.reply(b"{}")
            return
        sent = units(N, asked.resume)
        n_told = len(asked.told)
        if kills_at == -1:
            self.die()
            return
        await peer.head(pairs=EVENTS)
        for i, unit in enumerate(sent):
            # Unit i has token n_told + i - 1.
            if kills_at is not None and n_told + i - 1 >= kills_at:
                if engine is self.engine:
                    self.die()
                return
            await peer.chunk(unit)
            await pause_loop(0.005)
        await peer.end()


@contextlib.asynccontextmanager
async def supervised() -> AsyncIterator[tuple[FrontServed, Process]]:
    process = Process()
    async with front_served([], "connection.max_connections=512") as served:
        process.child = served.front.upstreams.add_child()
        await process.start()
        yield served, process
        await asyncio.gather(*process.restarting)
        process.engine.kill()


async def settled(served: FrontServed) -> None:
    while served.front.n_open:
        await pause_loop(0.01)


@pytest.mark.parametrize("kills_at", [-1, 0, 17])
@pytest.mark.parametrize("n_poisons", [1, 2])
def test_iso_5_poison_among_others_alone_ends(kills_at: int, n_poisons: int, repeats: Repeats) -> None:
    async def run() -> tuple[list[Got], list[Got], int, Got, int]:
        async with supervised() as (served, process):
            good = [asyncio.create_task(served.stream(user=str(i))) for i in range(repeats(60))]
            bad = [asyncio.create_task(served.stream(kills_at=kills_at, user=f"bad {i}")) for i in range(n_poisons)]
            found = await asyncio.gather(*good), await asyncio.gather(*bad)
            before = process.n_deaths
            again = await served.stream(kills_at=kills_at, user="bad 0")
            later = await served.stream(user="later")
            assert later.content == golden(N)
            return *found, before, again, process.n_deaths

    good, bad, n_before, again, n_after = asyncio.run(run())
    assert {each.content for each in good} == {golden(N)}
    for each in bad:
        error = each.content[each.content.rindex(b'{"error"') :].strip()
        assert json.loads(error)["error"]["code"] == "poison_request"
    assert (again.status, again.error["code"]) == (500, "poison_request")
    assert again.headers["x-should-retry"] == "false"
    assert n_before == n_after
    # The first death, the one of all that go on, and two alone for each; more if a late one comes again meanwhile.
    assert n_before <= 4 * n_poisons + 2


def test_iso_5_deaths_from_outside_count_against_nobody() -> None:
    async def run() -> list[Got]:
        async with supervised() as (served, process):
            asking = [asyncio.create_task(served.stream(user=str(i))) for i in range(12)]
            for _ in range(12):
                await pause_loop(0.06)
                process.die(is_own_fault=False)
            return await asyncio.gather(*asking)

    assert {each.content for each in asyncio.run(run())} == {golden(N)}


def test_c03_poison_is_found_while_others_kill_the_process_too() -> None:
    async def run() -> tuple[list[Got], Got]:
        async with supervised() as (served, process):
            asking = [asyncio.create_task(served.stream(user=str(i))) for i in range(8)]
            bad = asyncio.create_task(served.stream(kills_at=3))
            for _ in range(4):
                await pause_loop(0.15)
                process.die(is_own_fault=False)
            return await asyncio.gather(*asking), await bad

    good, bad = asyncio.run(run())
    assert {each.content for each in good} == {golden(N)}
    assert b"poison_request" in bad.content


def test_iso_5_requests_without_a_stream_wait_their_turn() -> None:
    async def run() -> tuple[list[Got], Got]:
        async with supervised() as (served, _):
            plain = [
                asyncio.create_task(served.get("/v1/chat/completions", "POST", json={"stream": False, "n": i}))
                for i in range(6)
            ]
            bad = asyncio.create_task(served.stream(kills_at=-1))
            return await asyncio.gather(*plain), await bad

    plain, bad = asyncio.run(run())
    assert {(each.status, each.content) for each in plain} == {(200, b"{}")}
    assert (bad.status, bad.error["code"]) == (500, "poison_request")


def test_iso_7_when_the_process_is_given_up_every_call_ends() -> None:
    async def run() -> tuple[Got, Got, Got]:
        async with supervised() as (served, process):
            asking = asyncio.create_task(served.stream())
            await pause_loop(0.08)
            assert process.child is not None  # narrows
            process.engine.kill()
            process.child.died(is_own_fault=True)
            waiting = asyncio.create_task(served.stream(user="waits"))
            await pause_loop(0.1)
            served.front.give_up()
            return await asking, await waiting, await served.stream(user="late")

    asking, waiting, late = asyncio.run(run())
    assert asking.content.startswith(golden(N)[:27])
    assert b"engine_lost" in asking.content
    assert [(each.status, each.error["code"]) for each in (waiting, late)] == [(503, "engine_lost")] * 2


def test_iso_5_a_refusal_lasts_ten_minutes_and_there_are_at_most_1024() -> None:
    now = [0.0]
    admission = Turns(lambda: now[0])
    for i in range(MAX_REFUSED + 1):
        admission.refuse(b"%d" % i)
    assert [admission.is_refused(lambda: b"0"), admission.is_refused(lambda: b"1")] == [False, True]
    now[0] = REFUSED_SECONDS + 1
    assert not admission.is_refused(lambda: b"1")


def test_iso_5_a_body_that_is_not_known_is_never_refused() -> None:
    admission = Turns()
    admission.refuse(b"")
    admission.refuse(b"x")
    assert not admission.is_refused(lambda: b"")


@pytest.mark.parametrize(
    ("death", "is_fault"),
    [
        *((Death(signal=number), True) for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)),
        (Death(signal=signal.SIGABRT), True),
        (Death(status=70), True),
        (Death(signal=signal.SIGKILL, by_watchdog=True), True),
        (Death(signal=signal.SIGKILL, for_memory=True), True),
        (Death(signal=signal.SIGKILL), False),
        (Death(signal=signal.SIGTERM), False),
        (Death(status=0), False),
        (Death(status=1), False),
    ],
)
def test_iso_5_which_deaths_are_faults_of_the_process(death: Death, is_fault: bool) -> None:
    assert death.is_fault is is_fault
    assert (death.cause != "other") is is_fault
