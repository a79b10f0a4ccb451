"""SIGHUP and AdminService.Reload on a server process: what they change, refuse and report."""

from __future__ import annotations

import contextlib
import hashlib
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest

from imp_service.pb import admin_pb2, admin_pb2_grpc, types_pb2
from support.calls.failed_calls import failed
from support.calls.wire import ask
from support.run.patience import HANGS_AFTER
from support.servers.server_process import ServerProcess, server_process

WITHOUT_SCORES = "[features]\nprompt_logprobs = false\n[log]\nlevel = 'debug'\n[scheduler]\nmax_running = 9\n"
SCORED = ask("Once", 1, output=types_pb2.OutputOptions(prompt_logprobs=1))


@contextlib.contextmanager
def configured(folder: Path, text: str = "", *words: str) -> Iterator[tuple[ServerProcess, Path]]:
    conf = folder / "imp.conf"
    conf.write_text(text)
    listens = ("listen.admin=127.0.0.1:0",)
    with server_process(folder, "--config", str(conf), *words, settings=listens) as server:
        server.wait_until_ready()
        yield server, conf


@contextlib.contextmanager
def admin_of(server: ServerProcess) -> Iterator[admin_pb2_grpc.AdminServiceStub]:
    with grpc.insecure_channel(server.wait_until_ready()["admin"]) as channel:
        yield admin_pb2_grpc.AdminServiceStub(channel)


def scores(server: ServerProcess) -> str:
    """Returns the status of a request for prompt scores."""
    with server.inference() as stub:
        try:
            list(stub.Generate(SCORED, timeout=HANGS_AFTER))
        except grpc.RpcError as error:
            return str(error.code().name)
        return "OK"


@pytest.mark.long
def test_lif_18_y11_sighup_takes_what_may_change_and_says_so(tmp_path: Path) -> None:
    with configured(tmp_path) as (server, conf):
        assert scores(server) == "OK"
        conf.write_text(WITHOUT_SCORES)
        server.signal(signal.SIGHUP)
        done, restart = server.wait_for_lines("reload", 2)
        assert (done["level"], done["message"]) == ("info", "done")
        assert set(done["changed"]) == {"features.prompt_logprobs", "log.level"}
        assert (restart["level"], restart["keys"]) == ("warning", ["scheduler.max_running"])
        assert scores(server) == "FAILED_PRECONDITION"
        conf.write_text("")
        server.signal(signal.SIGHUP)
        server.wait_for_lines("reload", 3)
        assert scores(server) == "OK"
        assert server.terminate() == 0


@pytest.mark.long
def test_lif_18_a_running_stream_goes_on_over_a_reload(tmp_path: Path) -> None:
    with configured(tmp_path) as (server, conf), server.canary():
        for n in range(1, 6):
            conf.write_text(f"[sessions]\nttl = '{n}m'\n[drain]\ngrace = '{n}s'\n")
            server.signal(signal.SIGHUP)
            server.wait_for_lines("reload", n)


@pytest.mark.long
def test_lif_18_the_log_says_what_changed(tmp_path: Path) -> None:
    with configured(tmp_path) as (server, conf), admin_of(server) as admin:
        conf.write_text(WITHOUT_SCORES)
        reply = admin.Reload(admin_pb2.ReloadRequest())
        assert set(reply.changed_keys) == {"features.prompt_logprobs", "log.level"}
        assert (list(reply.restart_keys), list(reply.file_keys)) == (["scheduler.max_running"], [])
        again = admin.Reload(admin_pb2.ReloadRequest())
        assert (list(again.changed_keys), list(again.restart_keys)) == ([], ["scheduler.max_running"])


def test_lif_18_a_value_of_the_command_line_stays(tmp_path: Path) -> None:
    with configured(tmp_path, "", "--set", "drain.grace=5s") as (server, conf), admin_of(server) as admin:
        conf.write_text("[drain]\ngrace = '7s'\ndelay = '1ms'\n")
        assert list(admin.Reload(admin_pb2.ReloadRequest()).changed_keys) == ["drain.delay"]


BAD: dict[str, Callable[[Path, Path], object]] = {
    "an unknown key": lambda conf, _: conf.write_text("[features]\nprompt_logprobs = false\nlogit = 1\n"),
    "no file": lambda conf, _: conf.unlink(),
    "bad tokens": lambda conf, tokens: (conf.write_text(WITHOUT_SCORES), tokens.write_text("nonsense\n")),
}


@pytest.mark.long
@pytest.mark.parametrize("name", BAD)
def test_lif_18_where_one_source_is_bad_nothing_changes(tmp_path: Path, name: str) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text(f"{hashlib.sha256(b'word').hexdigest()} data,admin *\n")
    with configured(tmp_path, "", "--set", f"auth.token_file={tokens}") as (server, conf), admin_of(server) as admin:
        metadata = [("authorization", "Bearer word")]
        BAD[name](conf, tokens)
        refused = failed(lambda: admin.Reload(admin_pb2.ReloadRequest(), metadata=metadata))
        assert (refused.code, refused.reason) == ("FAILED_PRECONDITION", "CONFIG_INVALID")
        assert refused.message.endswith("; nothing has changed")
        server.signal(signal.SIGHUP)
        assert {line["level"] for line in server.wait_for_lines("reload", 2)} == {"error"}
        conf.write_text("")
        tokens.write_text(f"{hashlib.sha256(b'word').hexdigest()} data,admin * # again\n")
        reply = admin.Reload(admin_pb2.ReloadRequest(), metadata=metadata)
        assert (list(reply.changed_keys), list(reply.file_keys)) == ([], ["auth.token_file"])


@pytest.mark.long
def test_lif_18_new_tokens_hold_when_the_reply_is_there(tmp_path: Path) -> None:
    """The new tokens hold before the next periodic check of the file."""
    line, (first, second) = "{} data,admin *\n", ("one", "two")
    digests = {word: hashlib.sha256(word.encode()).hexdigest() for word in (first, second)}
    tokens = tmp_path / "tokens"
    tokens.write_text(line.format(digests[first]))
    with configured(tmp_path, "", "--set", f"auth.token_file={tokens}") as (server, _), admin_of(server) as admin:
        tokens.write_text(line.format(digests[second]))
        # The thread that checks the file may be first: then the old token may no longer request a reload.
        with contextlib.suppress(grpc.RpcError):
            admin.Reload(admin_pb2.ReloadRequest(), metadata=[("authorization", f"Bearer {first}")])
        admin.ListRequests(admin_pb2.ListRequestsRequest(), metadata=[("authorization", f"Bearer {second}")])
        refused = failed(
            lambda: admin.ListRequests(admin_pb2.ListRequestsRequest(), metadata=[("authorization", f"Bearer {first}")])
        )
        assert refused.reason == "TOKEN_INVALID"
