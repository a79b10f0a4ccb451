"""AdminService: an operator lists requests and sessions, ends them, empties the cache and records profiles."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from imp_service.core.engine_client import UNASKED
from imp_service.pb import admin_pb2 as pb
from imp_service.pb import admin_pb2_grpc
from support.calls.admin_calls import LISTENS, admin_of
from support.calls.failed_calls import failed
from support.calls.session_calls import SessionCalls
from support.servers.served import Served, ask, serve, tokens_of
from support.servers.served_models import ENDLESS, built_in, scripted

Admin = admin_pb2_grpc.AdminServiceStub
# A prompt that must not appear in what an operator sees; no other text of the server contains it.
CANARY = "xylophone quartz"


class Fleet:
    """A server that runs one sequence at a time, with an operator."""

    def __init__(self, served: Served, admin: Admin) -> None:
        self.served = served
        self.admin = admin

    def begin(self, request_id: str, prompt: Any = CANARY) -> Any:
        """Starts a generation without an end."""
        request = ask(prompt, None, request_id=request_id)
        request.stop.ignore_eos = True
        return self.served.inference.Generate(request)

    def begin_two(self) -> tuple[Any, Any]:
        """Starts two requests: the first runs, the second waits for it."""
        running = self.begin("running")
        next(running)
        waiting = self.begin("waiting")
        self.served.wait_until(lambda: self.served.state.utilization.snapshot().waiting == 1, "a second one waits")
        return running, waiting

    def profile(self, request: pb.ProfileRequest, **call: Any) -> Any:
        """Starts a profile and waits until the engine records it."""
        profile = self.admin.Profile(request, **call)
        client = self.served.state.model.client
        self.served.wait_until(lambda: any(ticket != UNASKED for ticket in client._handlers), "a profile is recorded")
        return profile

    def listed(self) -> list[pb.RequestState]:
        return list(self.admin.ListRequests(pb.ListRequestsRequest()).requests)


@pytest.fixture
def fleet() -> Iterator[Fleet]:
    with serve(LISTENS, "scheduler.max_running=1", model=scripted(**ENDLESS)) as served, admin_of(served) as admin:
        yield Fleet(served, admin)


def reasons(stream: Any) -> list[str]:
    """Returns the finish reasons of a stream that ends with status OK."""
    messages = list(stream)
    ends = [m.finished for m in messages if m.WhichOneof("event") == "finished"]
    return [type(end).DESCRIPTOR.fields_by_name["reason"].enum_type.values_by_number[end.reason].name for end in ends]


def test_rpc_31_r17_abort_ends_what_runs_and_what_waits(fleet: Fleet) -> None:
    running, waiting = fleet.begin_two()
    reply = fleet.admin.Abort(pb.AbortRequest(request_ids=["waiting", "nobody", "running"]))
    assert sorted(reply.aborted_request_ids) == ["running", "waiting"]
    assert reasons(waiting) == reasons(running) == ["FINISH_REASON_ABORTED"]
    fleet.served.wait_for_rest()
    again = fleet.admin.Abort(pb.AbortRequest(request_ids=["waiting", "running"]))
    assert list(again.aborted_request_ids) == []


def test_rpc_31_abort_all(fleet: Fleet) -> None:
    streams = fleet.begin_two()
    reply = fleet.admin.Abort(pb.AbortRequest(all=True))
    assert sorted(reply.aborted_request_ids) == ["running", "waiting"]
    assert [reasons(stream) for stream in streams] == [["FINISH_REASON_ABORTED"]] * 2
    assert fleet.listed() == []


def test_rpc_31_abort_names_some_or_all(fleet: Fleet) -> None:
    for request in (pb.AbortRequest(), pb.AbortRequest(request_ids=["a"], all=True)):
        refused = failed(lambda request=request: fleet.admin.Abort(request))
        assert (refused.reason, refused.paths) == ("FIELD_INVALID", ["request_ids"])


def test_rpc_31_the_list_shows_requests_without_their_text(fleet: Fleet) -> None:
    running, waiting = fleet.begin_two()
    requests = fleet.served.state.requests
    fleet.served.wait_until(lambda: any(each.n_output_tokens for each in requests), "one has an output")
    first, second = fleet.listed()
    assert (first.request_id, first.running, second.request_id, second.running) == ("running", True, "waiting", False)
    n_prompt = len(fleet.served.state.model.tokenizer.encode(CANARY, add_special_tokens=True))
    assert first.prompt_tokens == second.prompt_tokens == n_prompt
    assert first.output_tokens >= 1 and second.output_tokens == 0
    assert first.peer.startswith("ipv4:127.0.0.1:")
    age = fleet.served.state.wall() - first.admit_time.ToNanoseconds() / 1e9
    assert 0 <= age < 3600
    assert first.admit_time.ToNanoseconds() <= second.admit_time.ToNanoseconds()
    text = f"{first}{second}"
    assert [word for word in CANARY.split() if word in text] == []
    running.cancel(), waiting.cancel()
    fleet.served.wait_until(lambda: not len(fleet.served.state.requests), "no request is left")
    fleet.served.wait_for_rest()


def test_rpc_31_the_list_of_sessions_shows_their_times(fleet: Fleet) -> None:
    client = SessionCalls(fleet.served)
    first = client.prefill(CANARY, session_id="").session_id
    fleet.served.jump(10)
    second = client.prefill([300, 301], session_id="").session_id
    listed = fleet.admin.ListSessions(pb.ListSessionsRequest())
    assert [each.session_id for each in listed.sessions] == [first, second]
    oldest, newest = listed.sessions
    assert newest.position == 2
    assert newest.last_use_time.ToNanoseconds() - oldest.last_use_time.ToNanoseconds() >= 10 * 10**9
    for each in listed.sessions:
        ttl = (each.expire_time.ToNanoseconds() - each.last_use_time.ToNanoseconds()) / 1e9
        assert round(ttl, 3) == 60.0
    assert CANARY.split(maxsplit=1)[0] not in str(listed)


def test_flush_empties_the_prefix_cache(fleet: Fleet) -> None:
    assert len(tokens_of(list(fleet.served.inference.Generate(ask(list(range(300, 364)), 4))))) == 4
    fleet.served.wait_for_rest()
    n_cached = fleet.served.stats().blocks_cached
    assert n_cached >= 4
    assert fleet.admin.FlushCache(pb.FlushCacheRequest()).freed_blocks == n_cached
    assert fleet.admin.FlushCache(pb.FlushCacheRequest()).freed_blocks == 0
    assert fleet.served.stats().blocks_cached == 0


def test_obs_4_profile_yields_a_loadable_trace_of_the_steps_asked_for() -> None:
    with serve(LISTENS, model=built_in()) as served, admin_of(served) as admin:
        found: list[bytes] = []
        recorder = threading.Thread(
            target=lambda: found.extend(piece.data for piece in admin.Profile(pb.ProfileRequest(steps=25)))
        )
        recorder.start()
        served.wait_until(lambda: len(served.state.calls._others) == 1, "the profile is asked for")
        while recorder.is_alive():
            list(served.inference.Generate(ask("Once upon a time", 30)))
        recorder.join()
    trace = json.loads(b"".join(found))
    assert sum(event["name"] == "step" for event in trace["traceEvents"]) == trace["otherData"]["steps"] == 25
    shares = [operation["share"] for operation in trace["otherData"]["operations"]]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1)


@pytest.mark.few(2)
@pytest.mark.parametrize("n_tokens", [0, 4])
@pytest.mark.parametrize("limit", [3600, None])
def test_obs_4_a_profile_ends_at_its_time_limit_with_the_steps_that_there_were(
    fleet: Fleet, limit: int | None, n_tokens: int
) -> None:
    """The limit counts the server's clock. A profile of an idle engine contains no steps."""
    profile = fleet.profile(pb.ProfileRequest(steps=1000, time_limit=limit and Duration(seconds=limit)))
    before = fleet.served.stats().n_steps
    if n_tokens:
        assert len(tokens_of(list(fleet.served.inference.Generate(ask([300], n_tokens))))) == n_tokens
        fleet.served.wait_for_rest()
    fleet.served.jump(limit or 60)
    found = json.loads(b"".join(piece.data for piece in profile))["otherData"]["steps"]
    assert found == fleet.served.stats().n_steps - before
    assert (found >= n_tokens) if n_tokens else (found == 0)


def test_obs_4_a_profile_is_there_before_its_callers_deadline(fleet: Fleet) -> None:
    profile = fleet.profile(pb.ProfileRequest(steps=1000, time_limit=Duration(seconds=600)), timeout=500)
    fleet.served.jump(400)
    assert json.loads(b"".join(piece.data for piece in profile))["otherData"]["steps"] == 0


def test_obs_4_r20_a_profile_that_its_caller_cancels_ends_and_leaves_the_next_one_alone(fleet: Fleet) -> None:
    first = fleet.profile(pb.ProfileRequest(steps=1000, time_limit=Duration(seconds=100)))
    first.cancel()
    client = fleet.served.state.model.client
    fleet.served.wait_until(lambda: all(ticket == UNASKED for ticket in client._handlers), "the engine has ended it")
    second = fleet.profile(pb.ProfileRequest(steps=1000, time_limit=Duration(seconds=300)))
    fleet.served.jump(150)  # beyond the time limit of the first one
    list(fleet.served.inference.Generate(ask([300], 5)))
    fleet.served.jump(150)
    assert json.loads(b"".join(piece.data for piece in second))["otherData"]["steps"] >= 5


def test_obs_4_a_profile_that_is_complete_leaves_the_next_one_alone(fleet: Fleet) -> None:
    first = fleet.profile(pb.ProfileRequest(steps=1, time_limit=Duration(seconds=100)))
    list(fleet.served.inference.Generate(ask([300], 2)))
    assert list(first)
    second = fleet.profile(pb.ProfileRequest(steps=1000, time_limit=Duration(seconds=300)))
    fleet.served.jump(150)  # beyond the time limit of the first one
    list(fleet.served.inference.Generate(ask([300], 5)))
    fleet.served.jump(150)
    assert json.loads(b"".join(piece.data for piece in second))["otherData"]["steps"] >= 5


def test_profile_can_be_switched_off() -> None:
    with serve(LISTENS, "features.profile=false", model=scripted()) as served, admin_of(served) as admin:
        refused = failed(lambda: list(admin.Profile(pb.ProfileRequest(steps=1))))
    assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", "FEATURE_DISABLED")


def test_r20_calls_of_an_operator_are_left_midway(fleet: Fleet) -> None:
    """A cancelled profile of an idle engine ends. A drain goes on after its caller cancels."""
    profile = fleet.admin.Profile(pb.ProfileRequest(steps=1000))
    fleet.served.wait_until(lambda: len(fleet.served.state.calls._others) == 1, "the profile is asked for")
    profile.cancel()
    stream = fleet.begin("running")
    next(stream)
    drain = fleet.admin.Drain(pb.DrainRequest())
    assert next(drain).drained is False
    drain.cancel()
    fleet.served.wait_until(lambda: not fleet.served.state.calls._others, "both are gone")
    assert fleet.served.state.utilization.snapshot().is_draining
    stream.cancel()
    fleet.served.wait_until(lambda: fleet.served.state.drain.is_drained, "the drain is over")


def test_lif_6_drain_tells_the_load_until_it_is_drained_and_resume_takes_work_again(fleet: Fleet) -> None:
    stream = fleet.begin("running")
    next(stream)
    drain = fleet.admin.Drain(pb.DrainRequest())
    first = next(drain)
    assert (first.drained, first.load.running, first.load.draining) == (False, 1, True)
    fleet.served.wait_until(lambda: fleet.served.state.lifecycle.phase.value == "draining", "no work is taken")
    assert failed(lambda: list(fleet.served.inference.Generate(ask([1], 1)))).reason == "DRAINING"
    stream.cancel()
    last = list(drain)[-1]
    assert (last.drained, last.load.draining) == (True, True)
    fleet.admin.Resume(pb.ResumeRequest())
    assert tokens_of(list(fleet.served.inference.Generate(ask([400], 3)))) == [401, 402, 403]
    assert not fleet.served.state.utilization.snapshot().is_draining


def test_lif_6_resume_ends_a_drain_that_is_under_way(fleet: Fleet) -> None:
    stream = fleet.begin("running")
    next(stream)
    drain = fleet.admin.Drain(pb.DrainRequest())
    assert next(drain).load.draining
    fleet.admin.Resume(pb.ResumeRequest())
    last = list(drain)[-1]
    assert (last.drained, last.load.draining) == (False, False)
    next(stream)
    stream.cancel()
    fleet.served.wait_for_rest()


def test_lif_6_what_is_left_at_the_timeout_is_ended(fleet: Fleet) -> None:
    stream = fleet.begin("running")
    next(stream)
    request = pb.DrainRequest()
    request.timeout.FromSeconds(0)
    assert list(fleet.admin.Drain(request))[-1].drained
    with pytest.raises(grpc.RpcError) as ended:
        list(stream)
    assert ended.value.code() is grpc.StatusCode.UNAVAILABLE


@pytest.mark.long
def test_lif_6_obs_5_a_drain_and_its_end_are_lines_of_the_log() -> None:
    with serve(LISTENS, "log.format=json") as served, admin_of(served) as admin:
        assert list(admin.Drain(pb.DrainRequest()))[-1].drained
        admin.Resume(pb.ResumeRequest())
        served.wait_until(lambda: len(served.log_lines()) >= 3, "the log is written")
        events = [json.loads(line)["event"] for line in served.log_lines()]
    assert [event for event in events if not event.startswith("call ")] == ["draining", "drained", "resumed"]
