"""Sessions go on elsewhere with the same draws, and a step is done once: cuts, lost sessions, drains, other models."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imp_service import Chunk, SessionStep
from imp_service.api.errors import FieldsInvalid, StateError
from imp_service.client.model.session_memory import SessionMemory
from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.imp_v1.decode_step import DecodeStep
from imp_service.serving.lifecycle import Phase
from support.calls.generations import counted
from support.calls.kinds_of_clients import client_of, refused
from support.calls.session_walk import SessionWalk, told, whole
from support.run.quick_run import Repeats
from support.run.release_run import repetitions
from support.servers.cutting_proxy import CuttingProxy, cutting_proxy
from support.servers.served import Served, serve
from support.servers.served_models import built_in
from support.servers.server_process import server_process

PROMPT = "Once upon a time"
SAMPLED = {"temperature": 1.1, "seed": 3, "frequency_penalty": 0.5}
N_WALKS = repetitions(300, 5)
# Calls of a walk.
N_CALLS = 30


@pytest.fixture(scope="module")
def one() -> Iterator[Served]:
    with serve("scheduler.prefill_chunk=16", "log.level=warning") as running:
        yield running


@pytest.fixture(scope="module")
def two() -> Iterator[Served]:
    """A server of the same origin that computes in another way."""
    with serve("kv.prefix_cache=false", "log.level=warning") as running:
        yield running


def lose(*servers: Served, tenant: str = "") -> None:
    """Ends the tenant's sessions, as a restart would: their names are unknown then."""
    for served in servers:
        sessions = served.state.sessions
        served.call(lambda: [sessions.close(each) for each in sessions.held() if each.tenant == tenant])  # noqa: B023
        served.run(sessions.closed())


class Faults:
    """Takes the sessions of the tenant `moved` away, before some calls and during others."""

    def __init__(self, seed: int, proxy: CuttingProxy, *servers: Served) -> None:
        self._random = random.Random(seed)
        self._proxy = proxy
        self._servers = servers
        self._timers: list[threading.Timer] = []
        self.n = 0

    def __call__(self) -> None:
        chance = self._random.random()
        self.n += chance < 0.5
        if chance < 0.15:
            self._proxy.lead_to(self._random.choice(self._servers).address)
            self._proxy.cut()
        elif chance < 0.35:
            lose(*self._servers, tenant="moved")
        elif chance < 0.5:
            self._timers.append(threading.Timer(self._random.random() / 100, self._proxy.cut))
            self._timers[-1].start()

    def end(self) -> None:
        for timer in self._timers:
            timer.join()


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_rsm_9_random_calls_give_the_same_while_sessions_are_lost(
    one: Served, two: Served, kind: str, repeats: Repeats
) -> None:
    """The release run makes 300 walks of each kind."""
    seen: set[str] = set()
    with ExitStack() as ends:
        proxy = ends.enter_context(cutting_proxy(one.address))
        plain = ends.enter_context(client_of(one.address, resume=False))
        moved = ends.enter_context(client_of(proxy.address, kind))
        for seed in range(repeats(N_WALKS)):
            faults = Faults(seed, proxy, one, two)
            walk = SessionWalk(plain, moved, seed, faults)
            seen.update(walk.go(N_CALLS))
            walk.close()
            faults.end()
            assert faults.n > N_CALLS // 5
    assert len(seen) > N_CALLS // 2
    lose(one, two, tenant="moved")


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", range(repetitions(20, 2)))
def test_rsm_9_sessions_outlive_killed_processes(one: Served, tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    with ExitStack() as ends:
        folders = [tmp_path / name for name in ("a", "b", "c")]
        for folder in folders:
            folder.mkdir()
        servers = [ends.enter_context(server_process(folder, is_traced=False)) for folder in folders]
        for server in servers:
            server.wait_until_ready()
        proxy = ends.enter_context(cutting_proxy(servers[0].address))
        plain = ends.enter_context(client_of(one.address, resume=False))
        moved = ends.enter_context(client_of(proxy.address))
        n_calls = iter(range(10**6))

        def disturb() -> None:
            if next(n_calls) in (9, 19):
                dead = servers.pop(0)
                proxy.lead_to(servers[0].address)
                if chance.random() < 0.5:
                    dead.signal(signal.SIGKILL)
                else:
                    timers.append(threading.Timer(chance.random() / 100, lambda: dead.signal(signal.SIGKILL)))
                    timers[-1].start()

        timers: list[threading.Timer] = []
        walk = SessionWalk(plain, moved, seed, disturb)
        walk.go(N_CALLS)
        walk.close()
        for timer in timers:
            timer.join()


def loop_of_calls(client: Any, between: Callable[[], object] = lambda: None) -> list[str]:
    """Returns what the calls of a program give that decides token by token."""
    with client.open(**SAMPLED) as session:
        outputs = [told(session.prefill(PROMPT))]
        for options in ({}, {"tokens": [301, 256]}, {"temperature": 0.7, "seed": 9}, {}, {}):
            between()
            outputs.append(told(session.decode_step(**options)))
        between()
        outputs.append(whole(session.generate(max_tokens=6, logprobs=True).result()))
        between()
        return [*outputs, told(session.decode_step()), str(session.position)]


@pytest.mark.parametrize("kind", ["threads", "tasks"])
@pytest.mark.parametrize("is_elsewhere", [False, True])
def test_rsm_9_c09_a_step_whose_answer_is_lost_is_done_once(
    one: Served, two: Served, monkeypatch: pytest.MonkeyPatch, kind: str, is_elsewhere: bool
) -> None:
    """Each connection breaks between a step and its answer. The server that has it is asked again, or another one."""
    answer, left = DecodeStep.answer_checked, [0]

    async def cut_before_the_answer(self: DecodeStep, *arguments: Any) -> pb.DecodeStepResponse:
        reply = await answer(self, *arguments)
        left[0] -= 1
        if left[0] == 0:
            if is_elsewhere:
                proxy.lead_to((two if proxy._server[1] == int(one.address.rpartition(":")[2]) else one).address)
            proxy.cut()
        return reply

    with client_of(one.address, resume=False) as plain:
        expected = loop_of_calls(plain)
    monkeypatch.setattr(DecodeStep, "answer_checked", cut_before_the_answer)
    with cutting_proxy(one.address) as proxy, client_of(proxy.address, kind) as moved:
        before = counted(one, "imp_output_tokens_total")
        assert loop_of_calls(moved, lambda: left.__setitem__(0, 1)) == expected
        n_drawn = counted(one, "imp_output_tokens_total") - before
    if not is_elsewhere:
        assert n_drawn == 1 + 5 + 6 + 1
    one.wait_for_calls()
    lose(one, two)


def test_rsm_9_a_generation_that_breaks_is_made_again_and_told_once(one: Served, two: Served) -> None:
    """Each is cut after some tokens were read. What bounds its outputs besides the sampler counts again too."""
    asked: list[dict[str, Any]] = [
        {"max_tokens": 300, "ignore_eos": True},
        {"regex": "(one |two |three ){12}!"},
        {"max_tokens": 100, "ignore_eos": True, "stop": " never there", "temperature": 1.2, "seed": 8},
    ]
    n_resumed = 0
    with ExitStack() as ends:
        proxy = ends.enter_context(cutting_proxy(one.address))
        still = ends.enter_context(client_of(one.address, resume=False)).open(**SAMPLED)
        session = ends.enter_context(client_of(proxy.address)).open(**SAMPLED)
        assert told(still.prefill(PROMPT)) == told(session.prefill(PROMPT))
        for i, options in enumerate(asked):
            expected = still.generate(logprobs=True, **options).result()
            generation = session.generate(logprobs=True, **options)
            read: list[int] = []
            is_cut = False
            for reply in generation:
                read += reply.token_ids if isinstance(reply, Chunk) else []
                if len(read) > 2 and not is_cut:
                    is_cut = True
                    proxy.lead_to((one, two)[(i + 1) % 2].address)
                    proxy.cut()
            result = generation.result()
            assert (whole(result), read) == (whole(expected), expected.token_ids)
            assert told(session.decode_step()) == told(still.decode_step())
            n_resumed += result.resumed
        still.close()
        session.close()
    one.wait_for_calls()
    lose(one, two)
    assert n_resumed >= 1


def test_rsm_9_a_child_of_a_lost_parent_goes_on(one: Served, two: Served) -> None:
    def forked(client: Any, between: Callable[[], object]) -> list[str]:
        with client.open(**SAMPLED) as session:
            seen = [told(session.prefill(PROMPT)), told(session.decode_step())]
            between()
            with session.fork() as twin, session.fork(2) as short:
                between()
                seen += [told(twin.decode_step()), told(short.decode_step([7, 8])), told(short.decode_step())]
                session.close()
                between()
                with twin.fork() as last:
                    return [*seen, told(last.decode_step()), told(twin.decode_step(sample=False)), str(twin.position)]

    with client_of(one.address) as plain, client_of(two.address) as moved:
        assert forked(plain, lambda: None) == forked(moved, lambda: lose(two))


def test_rsm_9_sessions_that_step_together_are_opened_again_one_by_one(one: Served, two: Served) -> None:
    def together(client: Any, between: Callable[[], object]) -> Iterator[list[str]]:
        with ExitStack() as ends:
            sessions = [ends.enter_context(client.open(temperature=1.0, seed=i)) for i in range(3)]
            for i, session in enumerate(sessions):
                session.prefill(PROMPT + " the" * i)
            for _ in range(3):
                between()
                yield [told(each) for each in client.decode_step([SessionStep(each) for each in sessions])]

    def lose_some() -> None:
        held = two.state.sessions.held()
        two.call(lambda: [two.state.sessions.close(each) for each in held[: len(lost)]])
        lost.append(len(held))

    lost: list[int] = []
    with client_of(one.address) as plain, client_of(two.address) as moved:
        assert list(together(plain, lambda: None)) == list(together(moved, lose_some))
    assert lost == [3, 3, 3]


def opened(client: Any) -> Any:
    """Returns a session with some tokens."""
    session = client.open(**SAMPLED)
    session.prefill(PROMPT)
    session.decode_step()
    return session


def test_rsm_9_resume_false_and_expired_sessions_fail_as_before() -> None:
    with serve("sessions.ttl=1s") as served:
        for options in ({"resume": False}, {"resume": False, "attempts": 1}):
            with client_of(served.address, **options) as client:
                session = opened(client)
                lose(served)
                for act in (lambda it: it.decode_step(), lambda it: it.generate().result(), lambda it: it.fork()):
                    assert refused(session, act).reason == "SESSION_NOT_FOUND"
        with client_of(served.address) as client:
            session = opened(client)
            served.jump(5)
            assert refused(session).reason == "SESSION_EXPIRED"
        served.wait_for_rest()


OTHERS = {
    "another model": ("server", "model.overrides.rope_theta=20"),
    "another default": ("request", "model.overrides.default_sampling.min_p=0.3"),
}


@pytest.mark.parametrize("name", OTHERS)
def test_rsm_9_a_session_never_goes_on_inexactly(one: Served, name: str) -> None:
    """The caller gets the failure as it was. When its server is back, the session goes on."""
    differs, setting = OTHERS[name]
    other_model = replace(built_in(), canary=None)
    with (
        serve(setting, model=other_model) as other,
        cutting_proxy(one.address) as proxy,
        client_of(proxy.address) as client,
    ):
        session = opened(client)
        expected = told(session.fork().decode_step())
        for act in (lambda it: it.decode_step(), lambda it: it.generate().result(), lambda it: it.prefill("a")):
            proxy.lead_to(other.address)
            proxy.cut()
            n_before = counted(other, "imp_resume_mismatch_total", differs=differs)
            # The first failure: a call may be sent before gRPC has noticed the cut.
            assert refused(session, act).reason in ("SESSION_NOT_FOUND", "UNAVAILABLE")
            assert counted(other, "imp_resume_mismatch_total", differs=differs) > n_before
            other.wait_for_rest()
        proxy.lead_to(one.address)
        proxy.cut()
        assert told(session.decode_step()) == expected
    lose(one)


def test_rsm_9_other_bits_are_met_at_the_seam(one: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that wrongly says to be the same. Without the seam, the session would go on with its tokens."""
    model = replace(built_in(), canary=None)
    with serve("model.overrides.rope_theta=20", model=model) as wrong, cutting_proxy(one.address) as proxy:
        wrong.state.model.__dict__["fingerprint"] = one.state.model.fingerprint

        def moved() -> tuple[str, str]:
            with client_of(proxy.address) as client:
                session = client.open(temperature=0)
                session.prefill(PROMPT)
                for _ in range(8):
                    session.decode_step()
                expected = told(session.fork().decode_step())
                proxy.lead_to(wrong.address)
                proxy.cut()
                try:
                    return told(session.decode_step()), expected
                except StateError as error:
                    return error.reason, expected
                finally:
                    proxy.lead_to(one.address)
                    proxy.cut()

        n_before = counted(wrong, "imp_resume_mismatch_total", differs="token")
        assert moved()[0] == "SESSION_NOT_FOUND"
        assert counted(wrong, "imp_resume_mismatch_total", differs="token") == n_before + 1
        wrong.wait_for_rest()
        put_state = SessionMemory.put_state

        def without_the_seam(self: SessionMemory, request: pb.PrefillRequest) -> None:
            put_state(self, request)
            request.resume.taken = self.pending is not None

        monkeypatch.setattr(SessionMemory, "put_state", without_the_seam)
        found, expected = moved()
        assert found not in (expected, "SESSION_NOT_FOUND")
        lose(wrong)
    lose(one)


def test_rsm_9_another_base_is_met_at_the_seam(one: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    put_state = SessionMemory.put_state

    def off_by_one(self: SessionMemory, request: pb.PrefillRequest) -> None:
        put_state(self, request)
        request.base -= 1

    monkeypatch.setattr(SessionMemory, "put_state", off_by_one)
    with client_of(one.address) as client:
        reasons = set()
        for seed in range(5):
            session = client.open(temperature=1.5, seed=seed)
            session.prefill(PROMPT)
            lose(one)
            try:
                session.decode_step()
            except StateError as error:
                reasons.add(error.reason)
    assert reasons == {"SESSION_NOT_FOUND"}
    lose(one)


def test_rsm_9_a_session_leaves_a_server_that_drains(one: Served) -> None:
    with ExitStack() as ends:
        servers = [ends.enter_context(serve("drain.delay=0s", "drain.grace=60s")) for _ in range(2)]
        address = "ipv4:" + ",".join(each.address for each in servers)
        plain = ends.enter_context(client_of(one.address))
        moved = ends.enter_context(client_of(address))
        with plain.open(**SAMPLED) as still, moved.open(**SAMPLED) as session:
            assert told(still.prefill(PROMPT)) == told(session.prefill(PROMPT))
            for _ in range(3):
                (holder,) = (each for each in servers if each.state.sessions.held())
                (other,) = (each for each in servers if each is not holder)
                holder.call(holder.state.drain.begin)
                holder.wait_until(lambda: holder.state.lifecycle.phase is Phase.DRAINING, "draining")  # noqa: B023
                assert told(still.decode_step()) == told(session.decode_step())
                assert len(other.state.sessions.held()) == 1
                lose(holder)
                holder.call(holder.state.drain.resume)


def test_rsm_9_wrong_arguments_are_refused_as_before(one: Served) -> None:
    with client_of(one.address) as client, client.open() as session:
        session.prefill(PROMPT)
        for act in (lambda: session.fork(-1), lambda: session.truncate(-1), lambda: session.decode_step([-1])):
            with pytest.raises(FieldsInvalid):
                act()
        assert session.position == 4
