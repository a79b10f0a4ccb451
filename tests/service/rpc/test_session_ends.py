"""How sessions end, and how many may exist: ttl, another instance, limits, eviction, drain."""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from imp_service.rpc.imp_v1.decode_stream import DecodeStream
from imp_service.serving.session import sessions as sessions_module
from support.calls.session_calls import Sent, SessionCalls, calls_at_rest, details_of, prefill, reason, refusal, seconds
from support.run.release_run import repetitions
from support.servers.gate import HELD, gate
from support.servers.served import Served, serve
from support.servers.served_models import scripted

PROMPT = [300 + 11 * i % 90 for i in range(10)]
# The ttl in seconds.
TTL = 600
N_OPENINGS = repetitions(10_000, 120)
N_EXPIRIES = repetitions(10_000, 60)


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve("sessions.max=40", f"sessions.ttl={TTL}s") as running:
        yield running


@pytest.fixture
def calls(served: Served) -> Iterator[SessionCalls]:
    with served.frozen():
        yield from calls_at_rest(served)


def test_ses_16_s02_a_session_unused_for_its_ttl_is_freed_and_use_renews_it(calls: SessionCalls) -> None:
    name = calls.prefill(PROMPT).session_id
    for position in range(11, 14):
        calls.served.jump(TTL - 1)
        assert calls.step(name).position == position
    calls.served.jump(TTL - 1)
    assert calls.served.stats().sessions == 1
    calls.served.jump(1)
    calls.served.wait_for_rest()
    for call in (
        lambda: calls.step(name),
        lambda: calls.prefill([301], name),
        lambda: calls.fork(name),
        lambda: calls.truncate(name, 3),
    ):
        found = refusal(call)
        assert (found.reason, found.metadata) == ("SESSION_EXPIRED", {"session_id": name})
    assert calls.release(name) is False


def test_ses_16_a_caller_sets_the_ttl_and_may_change_it(calls: SessionCalls) -> None:
    brief = calls.prefill(PROMPT, ttl=seconds(100)).session_id
    long = calls.prefill(PROMPT, ttl=seconds(3600)).session_id
    changed = calls.prefill(PROMPT, ttl=seconds(3600)).session_id
    assert calls.prefill([301], changed, ttl=seconds(400)).output.position == 11
    copy = calls.fork(brief).session_id
    calls.served.jump(101)
    calls.served.wait_until(lambda: len(calls.served.state.sessions) == 2, "two have expired")
    assert reason(lambda: calls.step(brief)) == reason(lambda: calls.step(copy)) == "SESSION_EXPIRED"
    calls.served.jump(300)
    assert reason(lambda: calls.step(changed)) == "SESSION_EXPIRED"
    calls.served.jump(2500)
    assert calls.step(long).position == 11


def test_ses_16_a_name_may_be_used_again_after_its_session_expired(calls: SessionCalls) -> None:
    first = calls.prefill(PROMPT, "again", position=0)
    calls.served.jump(TTL)
    assert reason(lambda: calls.step("again", position=10)) == "SESSION_EXPIRED"
    assert calls.prefill(PROMPT, "again", position=0).output == first.output
    assert calls.step("again", position=10).position == 11


@pytest.mark.long
def test_s14_ses_16_expiry_at_any_moment_of_a_step_is_one_of_two_outcomes(calls: SessionCalls) -> None:
    """The clock jumps while steps arrive, wait, run and return; 10,000 rounds in the release run."""
    outcomes = {"done": 0, "SESSION_EXPIRED": 0}
    with ThreadPoolExecutor(2) as threads:
        for n in range(N_EXPIRIES):
            name = calls.prefill(PROMPT, ttl=seconds(TTL)).session_id
            step = threads.submit(lambda: calls.step(name, [301] * (n % 7 * 30 + 1)))  # noqa: B023
            if n % 3 == 0:
                calls.served.jump(TTL + 1)
            elif n % 3 == 1:
                calls.served.wait_until(lambda: step.running() or step.done(), "the step is sent")  # noqa: B023
                calls.served.jump(TTL + 1)
            else:
                step.exception()
                calls.served.jump(TTL + 1)
            try:
                assert step.result().position == 11 + n % 7 * 30
                outcomes["done"] += 1
            except grpc.RpcError as error:
                outcomes[reason(step.result)] += 1
                assert error.code() is grpc.StatusCode.NOT_FOUND  # type: ignore[attr-defined]
            # Whichever came first, a use that happened renewed the ttl.
            calls.served.jump(TTL + 1)
            calls.served.wait_for_rest()
            assert reason(lambda: calls.step(name)) == "SESSION_EXPIRED"  # noqa: B023
    assert outcomes["done"] > 0 and sum(outcomes.values()) == N_EXPIRIES


def test_s14_ses_16_a_step_that_runs_keeps_its_session() -> None:
    """The ttl passes while the engine is stopped within the step: the step finishes, and counts as a use."""
    with gate() as held_up, serve(model=held_up.model()) as served, served.frozen(), ThreadPoolExecutor(1) as threads:
        calls = SessionCalls(served)
        name = calls.prefill([HELD - 10, HELD - 9], ttl=seconds(TTL)).session_id
        running = threads.submit(calls.step, name, [HELD])
        held_up.wait()
        served.jump(TTL + 1)
        assert len(served.state.sessions) == 1
        held_up.open()
        assert running.result().position == 3
        served.jump(TTL - 1)
        assert calls.step(name).position == 4
        served.jump(TTL + 1)
        assert reason(lambda: calls.step(name)) == "SESSION_EXPIRED"


def test_ses_17_s02_a_session_of_another_start_is_lost(calls: SessionCalls) -> None:
    calls.prefill(PROMPT, "chosen", position=0)
    with serve() as restarted:
        after = SessionCalls(restarted)
        name = calls.prefill(PROMPT).session_id
        for call in (
            lambda: after.step(name, position=10),
            lambda: after.prefill([301], name),
            lambda: after.prefill(PROMPT, name, position=0),
            lambda: after.fork(name),
            lambda: after.truncate(name, 0),
        ):
            found = refusal(call)
            assert (found.reason, found.metadata) == (
                "SESSION_LOST",
                {"session_id": name, "instance_id": calls.served.state.instance_id},
            )
        assert after.release(name) is False
        assert reason(lambda: after.step("chosen", position=10)) == "SESSION_NOT_FOUND"
        # The instance does not know this name of its own: it was released, or never assigned.
        own = after.prefill(PROMPT).session_id
        assert after.release(own) is True
        assert reason(lambda: after.step(own)) == "SESSION_NOT_FOUND"


@pytest.mark.long
def test_ses_18_s12_at_the_limit_opening_is_refused_and_the_ttl_frees_all(calls: SessionCalls) -> None:
    """The release run tries 10,000 openings for the 40 places, and every session is abandoned."""
    n_opened = n_full = 0
    for _ in range(N_OPENINGS):
        try:
            calls.prefill(PROMPT[:1])
            n_opened += 1
        except grpc.RpcError as error:
            found = details_of(error)
            assert found.reason == "SESSIONS_FULL"
            assert found.pushback_ms == -1  # gRPC would wait that long in silence
            assert found.retry_seconds == TTL  # until the first session expires
            n_full += 1
    assert (n_opened, n_full) == (40, N_OPENINGS - 40)
    assert reason(lambda: calls.fork(calls.served.state.sessions.held()[0].session_id)) == "SESSIONS_FULL"
    calls.served.jump(TTL + 1)
    calls.served.wait_for_rest()
    assert [calls.prefill(PROMPT[:1]).output.position for _ in range(40)] == [1] * 40


def test_ses_16_s12_names_that_expired_are_forgotten_oldest_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "MAX_EXPIRED_NAMES", 5)
    names = [f"expires-{i}" for i in range(8)]
    with serve(f"sessions.ttl={TTL}s") as served, served.frozen():
        calls = SessionCalls(served)
        for name in names:
            calls.prefill(PROMPT[:1], name, position=0)
            served.jump(1)
        served.jump(TTL)
        served.wait_for_rest()
        found = [reason(lambda: calls.step(name)) for name in names]  # noqa: B023
    assert found == ["SESSION_NOT_FOUND"] * 3 + ["SESSION_EXPIRED"] * 5


def test_s12_an_expired_session_gives_its_place_at_once(calls: SessionCalls) -> None:
    for _ in range(40):
        calls.prefill(PROMPT[:1])
    # The loop's timer does not run here: the next opening finds the expired sessions.
    calls.served.call(lambda: calls.served.thread.clock.jump(TTL + 1))
    assert calls.prefill(PROMPT).output.position == 10


@pytest.mark.long
def test_ses_18_places_are_given_back_on_every_way_out(calls: SessionCalls) -> None:
    context = calls.served.state.model.max_context
    too_long = [300 + i % 50 for i in range(context + 1)]
    for _ in range(50):
        assert reason(lambda: calls.prefill(too_long, "failed", position=0)) == "CONTEXT_TOO_LONG"
        assert reason(lambda: calls.prefill(PROMPT, position=3)) == "POSITION_MISMATCH"
    assert len(calls.served.state.sessions) == 0
    assert reason(lambda: calls.step("failed")) == "SESSION_NOT_FOUND"


def test_ses_19_s21_idle_sessions_keep_their_blocks_unless_configured_otherwise() -> None:
    """Two idle sessions fill a cache of 8 blocks of 16 tokens."""
    for evict in (False, True):
        model = scripted(n_blocks=8, max_context=128, evict_sessions=evict)
        with serve(f"sessions.evict={str(evict).lower()}", model=model) as served, served.frozen():
            calls = SessionCalls(served)
            sixty = list(range(300, 360))
            old = calls.prefill(sixty).session_id
            new = calls.prefill([400, *sixty]).session_id
            if evict:
                assert calls.prefill([500, *sixty]).output.position == 61
                found = refusal(lambda: calls.step(old))  # noqa: B023
                assert (found.reason, found.metadata) == ("SESSION_EXPIRED", {"session_id": old})
                assert len(served.state.sessions) == 2
            else:
                found = refusal(lambda: calls.prefill([500, *sixty]))  # noqa: B023
                # Nothing runs: blocks become free only when the older session expires.
                assert (found.reason, found.retry_seconds) == ("KV_FULL", 60)
                assert found.pushback_ms == -1
                assert set(found.metadata) >= {"needed", "available"}
                assert len(served.state.sessions) == 2
                assert calls.step(old).position == 61
            assert calls.step(new).position == 62


def test_ses_19_s21_a_full_cache_says_when_the_blocks_that_lack_are_free() -> None:
    """Three idle sessions hold six of eight blocks of 16 tokens, and expire in the opposite order."""
    with serve("sessions.evict=false", model=scripted(n_blocks=8, max_context=128)) as served:
        calls = SessionCalls(served)
        for n_tokens, ttl in ((17, 300), (33, 200), (10, 100)):
            calls.prefill([300 + n_tokens] * n_tokens, ttl=seconds(ttl))
        waits: list[int] = []
        for n_blocks in range(3, 9):
            found = refusal(lambda: calls.prefill([400] * (16 * n_blocks - 4)))  # noqa: B023
            assert (found.reason, found.metadata) == ("KV_FULL", {"needed": str(n_blocks), "available": "2"})
            waits.append(math.ceil((found.retry_seconds or 0) / 100))
        assert waits == [1, 2, 2, 2, 3, 3]


def test_s28_idle_sessions_hold_no_drain_and_running_steps_finish(monkeypatch: pytest.MonkeyPatch) -> None:
    n_read, begin = 0, DecodeStream._begin

    def read(stream: DecodeStream, request: pb.DecodeStreamRequest) -> object:
        nonlocal n_read
        n_read += 1
        return begin(stream, request)

    monkeypatch.setattr(DecodeStream, "_begin", read)
    with gate() as held_up, serve(model=held_up.model()) as served:
        calls = SessionCalls(served)
        calls.prefill(PROMPT, "idle", position=0)
        idle, busy = Sent(), Sent()
        streams = [calls.stub.DecodeStream(iter(sent), timeout=30) for sent in (idle, busy)]
        for sent, stream, name in ((idle, streams[0], "a"), (busy, streams[1], "b")):
            sent.send(pb.DecodeStreamRequest(prefill=prefill(PROMPT, name, position=0)))
            assert next(stream).prefill.output.position == 10
        step = pb.SessionStep(session_id="b", token_ids=[HELD])
        for _ in range(2):
            busy.send(pb.DecodeStreamRequest(step=pb.DecodeStepRequest(steps=[step])))
        held_up.wait()
        served.wait_until(lambda: n_read == 4, "both steps are read")
        served.call(lambda: served.state.drain.begin(30.0))
        # The idle stream ends at once, the other after its last answer.
        with pytest.raises(grpc.RpcError) as ended:
            next(streams[0])
        told = details_of(ended.value)
        assert (told.reason, told.metadata["tokens_emitted"]) == ("DRAINING", "1")
        assert reason(lambda: calls.step("idle")) == "DRAINING"
        held_up.open()
        assert next(streams[1]).step.results[0].output.position == 11
        assert next(streams[1]).error.reason == "DRAINING"
        with pytest.raises(grpc.RpcError) as ended:
            next(streams[1])
        told = details_of(ended.value)
        assert (told.reason, told.metadata["tokens_emitted"]) == ("DRAINING", "2")
        served.wait_until(lambda: served.state.drain.is_drained, "drained with a session open")
        assert len(served.state.sessions) == 1
        for sent in (idle, busy):
            sent.end()


@pytest.mark.long
def test_s28_a_server_stops_with_sessions_open() -> None:
    with serve() as served:
        calls = SessionCalls(served)
        opened = [calls.stub.Prefill(prefill(PROMPT)).session_id for _ in range(3)]
        assert len(set(opened)) == len(served.state.sessions) == 3
    assert len(served.state.sessions) == 0


def test_ses_19_sch_7_idle_sessions_of_one_connection_leave_blocks_to_another() -> None:
    """Neither caller has a name. Four idle sessions of one connection hold all blocks."""
    with serve("sessions.evict=false", model=scripted(n_blocks=8, max_context=128)) as served, served.frozen():
        first, second = SessionCalls(served), SessionCalls(served)
        second.stub = InferenceServiceStub(served.channel())
        names = [first.prefill([300 + i] * 31).session_id for i in range(4)]
        assert served.stats().blocks_live == 8
        # The first one's own work gets no blocks: its sessions keep what they hold.
        assert refusal(lambda: first.prefill([400] * 31)).reason == "KV_FULL"
        assert second.prefill([400] * 31).output.position == 31
        assert reason(lambda: first.step(names[0])) == "SESSION_EXPIRED"
        assert [first.step(name).position for name in names[1:]] == [32] * 3
