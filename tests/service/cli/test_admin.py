"""imp admin against a real server: each action does what the RPC does, and reports it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import grpc
import pytest

from imp_service.pb.inference_pb2 import GenerateRequest, PrefillRequest
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.calls.admin_calls import LISTENS
from support.calls.session_calls import SessionCalls
from support.machine.terminal_session import CTRL_C, terminal_session
from support.run.patience import HANGS_AFTER
from support.servers.certificates import Authority
from support.servers.served import ask, serve
from support.servers.served_models import ENDLESS as ENDLESS_SCRIPT
from support.servers.served_models import scripted
from support.servers.server_process import server_process

# No token ends a text, so it does not finish before it is ended.
ENDLESS = (
    *("-c", "16K", "--set", "model.overrides.untrained_context=true"),
    *("--set", "model.overrides.eos_token_ids=[]"),
)
ADMIN = ("listen.admin=127.0.0.1:0",)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory):
    with server_process(tmp_path_factory.mktemp("server"), *ENDLESS, settings=ADMIN) as process:
        process.wait_until_ready()
        yield process


@pytest.fixture
def admin(server, call, monkeypatch):
    """Runs imp admin with these words. The environment contains the address."""
    monkeypatch.setenv("IMP_ADMIN", server.wait_until_ready()["admin"])
    return lambda *words: call("admin", *words)


@pytest.fixture
def endless(server):
    """A running generation that does not finish by itself; its first message has been read."""
    with grpc.insecure_channel(server.address) as channel:
        request = GenerateRequest(text="Once", stop={"max_tokens": 16000})
        replies = InferenceServiceStub(channel).Generate(request, metadata=(("imp-request-id", "endless"),))
        next(replies)
        yield replies
        replies.cancel()


@pytest.mark.long
def test_cmd_9_requests_are_listed_and_aborted(admin, endless) -> None:
    status, out, _ = admin("requests", "--json")
    (state,) = map(json.loads, out.splitlines())
    assert (status, state["prompt_tokens"]) == (0, 1)
    name = state["request_id"]
    status, out, _ = admin("requests")
    assert (status, out.split()[:2], name in out) == (0, ["request", "state"], True)
    assert admin("abort", name) == (0, f"{name}\n", "")
    assert next(reply for reply in endless if reply.HasField("finished")).finished.reason != 0
    status, out, err = admin("abort", name)
    assert (status, out) == (66, "")
    assert err == f"imp: error: REQUEST_NOT_FOUND: {name}: neither running nor waiting\n"
    assert admin("abort", "--all") == (0, "", "")
    assert admin("requests") == (0, "no requests\n", "")


def test_cmd_9_sessions_are_listed_and_the_cache_is_emptied(admin, server) -> None:
    assert admin("sessions") == (0, "no sessions\n", "")
    with server.connection() as channel:
        InferenceServiceStub(channel).Prefill(PrefillRequest(text="Once upon a time"))
    status, out, _ = admin("sessions")
    assert (status, out.splitlines()[0].split()) == (0, ["session", "tokens", "unused", "for", "ends", "in"])
    assert out.splitlines()[1].split()[1] == "4"
    status, out, _ = admin("flush-cache")
    assert (status, out.endswith(" blocks freed\n")) == (0, True)


def test_cmd_9_a_session_that_a_call_uses_has_no_time_of_its_end(admin, server) -> None:
    with server.connection() as channel:
        inference = InferenceServiceStub(channel)
        name = inference.Prefill(PrefillRequest(text="Once")).session_id
        replies = inference.Generate(GenerateRequest(session_id=name, stop={"max_tokens": 16000}))
        next(replies)
        rows = [line for line in admin("sessions")[1].splitlines() if line.startswith(name)]
        replies.cancel()
    assert [row.split()[-2:] for row in rows] == [["in", "use"]]


def test_cmd_9_a_profile_is_a_trace(admin, endless) -> None:
    status, _, err = admin("profile", "--steps", "3", "-o", "trace.json")
    assert (status, err.startswith("trace.json: open it in ")) == (0, True)
    assert json.loads(Path("trace.json").read_text())
    status, out, _ = admin("profile", "--steps", "1", "-o", "-")
    assert (status, bool(json.loads(out))) == (0, True)
    status, out, err = admin("profile", "--steps", "0")
    assert (status, out, "steps" in err) == (64, "", True)


@pytest.mark.long
def test_cmd_9_a_drain_is_reported_until_it_is_over_and_taken_back(admin, endless) -> None:
    status, out, _ = admin("drain", "--timeout", "300ms")
    first, *_, last = out.splitlines()
    assert (status, first.startswith("draining: running 1, waiting 0, "), last) == (0, True, "drained")
    with pytest.raises(grpc.RpcError, match="stopping"):
        for _ in endless:
            pass
    assert admin("resume") == (0, "the server accepts new calls again\n", "")


def test_cmd_9_reload_tells_what_it_found(admin) -> None:
    assert admin("reload") == (0, "nothing has changed\n", "")
    assert json.loads(admin("reload", "--json")[1])["restart_keys"] == []


def test_cmd_9_ages_are_by_the_servers_clock(call) -> None:
    """The server's clock is at least an hour ahead of the client's."""
    with serve(LISTENS, model=scripted(**ENDLESS_SCRIPT)) as served, served.frozen():
        served.jump(3600)
        sessions = SessionCalls(served)
        held = sessions.prefill([300, 301]).session_id
        request = ask("Once", None)
        request.stop.ignore_eos = True
        running = served.inference.Generate(request)
        next(running)
        served.jump(20)
        at = ("--target", str(served.server.admin_address))
        age = call("admin", "requests", *at)[1].splitlines()[1].split()[2]
        _, _, unused, _, left, _ = call("admin", "sessions", *at)[1].splitlines()[1].split()
        running.cancel()
        sessions.release(held)
        served.wait_for_rest()
    assert (float(age), float(unused), float(left)) == (20, 20, 40)


def test_cmd_9_a_bad_address_is_reported_with_where_it_was_read(call, monkeypatch) -> None:
    monkeypatch.setenv("IMP_ADMIN", "http://imp")
    for words, origin in (((), "$IMP_ADMIN"), (("--target", "http://imp"), "--target")):
        status, _, err = call("admin", "requests", *words)
        assert (status, err.startswith(f"imp: error: USAGE: {origin}: http://imp: is a URL")) == (64, True)


@pytest.mark.long
def test_cmd_9_an_address_is_needed(call) -> None:
    status, out, err = call("admin", "requests")
    assert (status, out) == (64, "")
    assert err.startswith(
        "imp: error: USAGE: --target: not given, and $IMP_ADMIN is not set; expected the address of listen."
    )
    status, _, err = call("admin", "abort", "--target", "127.0.0.1:1")
    assert (status, "ID: expected one or several, or --all" in err) == (64, True)
    status, _, err = call("admin", "resume", "--target", "127.0.0.1:1")
    assert (status, "UNAVAILABLE: 127.0.0.1:1: nothing listens there" in err) == (69, True)


@pytest.fixture
def secure(tmp_path: Path):
    """A server with TLS on its data listener and without on its admin listener."""
    authority = Authority()
    cert, key = authority.issue().write(tmp_path)
    (tmp_path / "ca.pem").write_bytes(authority.cert)
    with server_process(tmp_path, settings=(f"tls.cert={cert}", f"tls.key={key}", *ADMIN)) as process:
        facts = process.wait_until_ready()
        yield ("--target", facts["grpc"][0], "--ca", str(tmp_path / "ca.pem"), "--admin", facts["admin"])


@pytest.mark.long
def test_cmd_10_top_shows_requests_beside_tls(call, secure) -> None:
    status, out, err = call("top", "--once", *secure)
    assert (status, err) == (0, "")
    assert "running" in out


@pytest.mark.sweep(quick=lambda key, expected: expected == 0)
@pytest.mark.parametrize(("key", "expected"), [("q", 0), (CTRL_C, 130)])
def test_cmd_10_q_leaves_the_live_view(key: str, expected: int, server, tmp_path: Path) -> None:
    words = (sys.executable, "-m", "imp_service", "top", "--target", server.address)
    with terminal_session(tmp_path, *words) as terminal:
        terminal.read_until("q quits")
        terminal.type(key)
        assert terminal.process.wait(HANGS_AFTER) == expected
