"""A session belongs to its tenant: other tenants cannot see it, and do not use up its share of places."""

import re
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.rpc.statuses import LONGEST_PUSHBACK
from imp_service.serving.session.held_session import instance_of, new_session_id
from support.calls.session_calls import SessionCalls, reason, refusal
from support.run.release_run import repetitions
from support.servers.served import Served, ask, serve

N_NAMES = repetitions(10_000_000, 20_000)
N_GUESSES = repetitions(1_000_000, 1_200)
PROMPT = [300 + 11 * i % 90 for i in range(40)]


@pytest.fixture
def served() -> Iterator[Served]:
    with serve("sessions.max=30", "sessions.per_tenant=8") as running, running.frozen():
        yield running


def every_call(calls: SessionCalls, name: str) -> list[Callable[[], object]]:
    """Returns each session RPC on a name."""
    return [
        lambda: calls.prefill([301], name),
        lambda: calls.prefill([301], name, position=len(PROMPT)),
        lambda: calls.step(name),
        lambda: calls.step(name, [301], position=len(PROMPT)),
        lambda: calls.fork(name),
        lambda: calls.fork(name, new_session_id="mine"),
        lambda: calls.truncate(name, 0),
    ]


@pytest.mark.long
@pytest.mark.parametrize("is_chosen", [False, True])
def test_ses_28_n05_a_foreign_session_is_unknown_in_the_same_words(served: Served, is_chosen: bool) -> None:
    owner, other = SessionCalls(served, "a"), SessionCalls(served, "b")
    name = owner.prefill(PROMPT, "chosen" if is_chosen else "", **({"position": 0} if is_chosen else {})).session_id
    random = "chance" if is_chosen else new_session_id(served.state.instance_id)
    for foreign, unknown in zip(every_call(other, name), every_call(other, random), strict=True):
        of_foreign, of_unknown = refusal(foreign), refusal(unknown)
        assert of_foreign.reason == "SESSION_NOT_FOUND"
        assert of_foreign.metadata == {"session_id": name} and of_unknown.metadata == {"session_id": random}
        assert (of_foreign.code, of_foreign.message) == (of_unknown.code, of_unknown.message)
    assert (other.release(name), other.release(random)) == (False, False)
    # Other tenants do not learn that the session existed, even after it has expired.
    served.jump(61)
    assert reason(lambda: other.step(name)) == "SESSION_NOT_FOUND"
    assert reason(lambda: owner.step(name)) == "SESSION_EXPIRED"


def test_n06_the_same_name_is_another_session_for_another_tenant(served: Served) -> None:
    owner, other = SessionCalls(served, "a"), SessionCalls(served, "b")
    for name in ("shared", owner.prefill(PROMPT).session_id):
        if name == "shared":
            owner.prefill(PROMPT, name, position=0)
        mine = other.prefill(PROMPT[:7], name, position=0)
        assert (mine.session_id, mine.output.position, mine.cached_tokens) == (name, 7, 0)
        assert owner.step(name, position=40).position == 41
        assert other.step(name, position=7).position == 8
        assert other.release(name) is True
        assert owner.step(name, position=41).position == 42


def test_n05_a_session_without_a_tenant_is_hidden_from_tenants(served: Served) -> None:
    nobody, somebody = SessionCalls(served), SessionCalls(served, "a")
    name = nobody.prefill(PROMPT).session_id
    assert reason(lambda: somebody.step(name)) == "SESSION_NOT_FOUND"
    assert nobody.step(name).position == 41


def test_n07_two_tenants_may_use_the_same_request_id(served: Served) -> None:
    """Two tenants run requests with the same id at once."""
    first, second = SessionCalls(served, "a"), SessionCalls(served, "b")
    request = ask([301, 302], 300, request_id="same")
    request.stop.ignore_eos = True
    running = first.stub.Generate(request, metadata=first.metadata)
    assert next(running).started.request_id == "same"
    beside = second.stub.Generate(request, metadata=second.metadata)
    assert next(beside).started.request_id == "same"
    beside.cancel()
    running.cancel()
    served.wait_for_rest()


def test_n08_session_ids_are_random_and_unique() -> None:
    """The release run draws ten million names."""
    form = re.compile(r"imp-0badcafe-([0-9a-f]{32})")
    randoms = bytearray()
    for _ in range(N_NAMES):
        name = new_session_id("0badcafe")
        found = form.fullmatch(name)
        assert found and instance_of(name) == "0badcafe"
        randoms += bytes.fromhex(found[1])
    rows = np.frombuffer(randoms, np.uint8).reshape(N_NAMES, 16)
    halves = rows.view(np.uint64)
    ordered = halves[np.lexsort(halves.T)]
    assert (ordered[1:] != ordered[:-1]).any(axis=1).all()
    # 128 random bits, each set in half of the names, within five standard errors.
    set_bits = sum(np.unpackbits(part, axis=1).sum(axis=0, dtype=np.int64) for part in np.array_split(rows, 20))
    assert (abs(set_bits - N_NAMES / 2) < 5 * N_NAMES**0.5 / 2).all()
    assert [instance_of(name) for name in ("mine", "imp-0badcafe-12", "0badcafe-" + "1" * 32, "")] == [None] * 4


def test_n08_a_guessed_session_id_finds_no_session(served: Served) -> None:
    """The release run makes a million guesses."""
    calls = SessionCalls(served)
    names = [calls.prefill(PROMPT).session_id for _ in range(20)]
    for _ in range(N_GUESSES // 60):
        guesses = [pb.SessionStep(session_id=new_session_id(served.state.instance_id)) for _ in range(60)]
        results = calls.steps(pb.SessionStep(session_id=names[0], token_ids=[301]), *guesses).results
        assert {each.error.reason for each in results[1:]} == {"SESSION_NOT_FOUND"}
        calls.truncate(names[0], len(PROMPT))


def test_n11_a_tenant_at_its_limit_leaves_room_for_others(served: Served) -> None:
    greedy, modest = SessionCalls(served, "a"), SessionCalls(served, "b")
    names = [greedy.prefill(PROMPT).session_id for _ in range(8)]
    found = refusal(lambda: greedy.prefill(PROMPT))
    assert found.reason == "TENANT_LIMIT"
    assert (found.retry_seconds, found.pushback_ms) == (60, -1) and LONGEST_PUSHBACK < 60
    assert reason(lambda: greedy.fork(names[0])) == "TENANT_LIMIT"
    assert [modest.prefill(PROMPT).output.position for _ in range(8)] == [40] * 8
    # The tenant can free places by a release, or by its sessions' ttl.
    greedy.release(names[0])
    assert greedy.prefill(PROMPT).output.position == 40
    served.jump(61)
    assert [greedy.prefill(PROMPT).output.position for _ in range(8)] == [40] * 8
    # Callers without a tenant have no limit per tenant.
    nobody = SessionCalls(served)
    assert [nobody.prefill(PROMPT).output.position for _ in range(22)] == [40] * 22
    assert reason(lambda: nobody.prefill(PROMPT)) == "SESSIONS_FULL"
