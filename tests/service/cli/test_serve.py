"""imp serve as a process: how it starts, its signals, and its exit statuses."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from support.calls.raw_calls import HEALTH, INFERENCE, call
from support.calls.status_details import read_details
from support.machine.command_line import clean_environment, demo_with, error_lines
from support.run.patience import HANGS_AFTER
from support.servers.served import ask, tokens_of
from support.servers.server_process import server_process, start_to_its_end

HARMLESS = (signal.SIGHUP, signal.SIGPIPE, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH, signal.SIGALRM)
GENERATE = f"/{INFERENCE}/Generate"
NOT_SERVING = b"\x08\x02"


def test_lif_7_y10_y11_l03_signals_that_mean_nothing_change_nothing_and_one_to_stop_drains(tmp_path: Path) -> None:
    with server_process(tmp_path, settings=("drain.grace=20s",)) as server:
        facts = server.wait_until_ready()
        assert facts["pid"] == server.pid and facts["model"] == "imp demo"
        assert [facts[name] for name in ("health", "metrics", "admin")] == [None] * 3
        with server.inference() as stub:
            stream = stub.Generate(ask("Once upon a time", 300, stop={"max_tokens": 300, "ignore_eos": True}))
            messages = [next(stream)]
            for number in HARMLESS:
                server.signal(number)
            server.signal(signal.SIGTERM)
            for number in HARMLESS:
                server.signal(number)
            messages += list(stream)
        assert len(tokens_of(messages)) == 300
        assert server.wait_for_end() == 0
        assert error_lines(server.stderr) == []


def test_n10_a_server_leaves_no_core(tmp_path: Path) -> None:
    """imp sets a core limit of one byte, whatever its own limit was: no file fits, and Linux feeds no pipe either."""
    with server_process(tmp_path, inside=("sh", "-c", 'ulimit -S -c "$(ulimit -H -c)"; exec "$0" "$@"')) as server:
        server.wait_until_ready()
        limits = Path(f"/proc/{server.pid}/limits").read_text()
        (core,) = (line.split() for line in limits.splitlines() if line.startswith("Max core file size"))
        assert core[4:6] == ["1", "1"]
        server.signal(signal.SIGTERM)
        assert server.wait_for_end() == 0


@pytest.mark.long
@pytest.mark.parametrize(("first", "second"), [("SIGTERM", "SIGTERM"), ("SIGINT", "SIGTERM"), ("SIGTERM", "SIGINT")])
def test_lif_7_y10_a_second_signal_ends_a_drain_at_once(tmp_path: Path, first: str, second: str) -> None:
    # The second signal ends even this delay.
    with (
        server_process(
            tmp_path, "--listen", "127.0.0.1:0", "--listen", f"unix://{tmp_path}/s", settings=("drain.delay=1h",)
        ) as server,
        grpc.insecure_channel(server.address) as channel,
    ):
        server.signal(signal.Signals[first])
        watch = channel.stream_stream(f"/{HEALTH}/Watch")(iter((b"",)), timeout=HANGS_AFTER)
        assert any(status == NOT_SERVING for status in watch)
        assert call(channel, GENERATE, ask("Once", 1).SerializeToString()).code == "OK"
        server.signal(signal.Signals[second])
        assert server.wait_for_end() == 128 + signal.Signals[second]


@pytest.mark.long
def test_l04_l05_y12_a_stream_that_outlasts_the_grace_is_cut_and_the_server_ends_well(tmp_path: Path) -> None:
    with server_process(tmp_path, settings=("drain.grace=0ms",)) as server:
        with server.inference() as stub:
            stream = stub.Generate(ask("Once upon a time", 500))
            next(stream)
            server.signal(signal.SIGINT)
            with pytest.raises(grpc.RpcError) as cut:
                list(stream)
            details = read_details(cut.value.trailing_metadata())
            assert (cut.value.code().name, details.reason) == ("UNAVAILABLE", "DRAINING")
        assert server.wait_for_end() == 0


BAD_STARTS: dict[str, tuple[int, str, Callable[[Path], list[str]]]] = {
    "unknown option": (64, "USAGE", lambda _: ["--nonsense"]),
    "one address twice": (
        78,
        "CONFIG_INVALID",
        lambda _: ["--listen", "127.0.0.1:9", "--set", "listen.health=127.0.0.1:9"],
    ),
    "key without certificate": (78, "CONFIG_INVALID", lambda _: ["--set", "tls.key=x"]),
    "control for everyone": (78, "CONFIG_INVALID", lambda _: ["--set", "listen.admin=0.0.0.0:0"]),
    "empty token file": (78, "CONFIG_INVALID", lambda folder: ["--set", f"auth.token_file={_file(folder, 'tokens')}"]),
    "no model": (66, "MODEL_MISSING", lambda folder: ["-m", f"{folder}/none.gguf"]),
    "no model file": (65, "MODEL_FORMAT", lambda folder: ["-m", str(_file(folder, "m.gguf", b"GGML" + b"x" * 100))]),
    "not the weights": (65, "WEIGHTS_CORRUPT", lambda _: ["--set", f"model.sha256={'0' * 64}"]),
    "no memory": (71, "NO_MEMORY", lambda _: ["--set", "kv.bytes=60TiB"]),
    "socket in a file's place": (73, "CANNOT_CREATE", lambda folder: ["--listen", f"unix://{_file(folder, 'f')}"]),
    "ready file nowhere": (73, "CANNOT_CREATE", lambda folder: ["--ready-file", f"{folder}/none/ready"]),
    "folder for everyone": (77, "ADDRESS_PERMISSION", lambda folder: ["--listen", f"unix://{_open_folder(folder)}/s"]),
}


def _file(folder: Path, name: str, content: bytes = b"") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def _open_folder(folder: Path) -> Path:
    path = folder / "open"
    path.mkdir()
    path.chmod(0o777)
    return path


@pytest.mark.long
@pytest.mark.parametrize("name", BAD_STARTS)
def test_lif_9_l07_l09_l10_l18_a_start_that_cannot_be_ends_with_its_status_and_one_line(
    tmp_path: Path, name: str
) -> None:
    status, reason, words = BAD_STARTS[name]
    more = words(tmp_path)
    ran = start_to_its_end(tmp_path, *more)
    assert (ran.returncode, ran.stdout) == (status, ""), ran.stderr
    (line,) = error_lines(ran.stderr)
    assert line.startswith(f"imp: error: {reason}: ") and len(line.encode()) <= 500
    # The log may have lines before: the last of these starts has loaded a model by then.
    others = [other for other in ran.stderr.splitlines() if other != line and not other.startswith("{")]
    assert others == (["imp serve --help lists what it takes"] if status == 64 else [])


def test_cmd_15_a_port_alone_is_one_of_this_machine(tmp_path: Path) -> None:
    with server_process(tmp_path, "--listen", "0", "--http", "0") as server:
        facts = server.wait_until_ready()
        shown = [address.partition(":") for name in ("grpc", "http") for address in facts[name]]
    assert [host for host, _, _ in shown] == ["127.0.0.1"] * 2 and all(int(port) > 0 for _, _, port in shown)


def _key_file(folder: Path) -> tuple[str, str]:
    return "--api-key-file", str(_file(folder, "keys", b"sk-secret\n"))


@pytest.mark.parametrize(
    "words",
    [
        lambda _: ("--api-key", "sk-secret"),
        lambda _: ("--api-key-env", "LLAMA_API_KEY"),
        _key_file,
    ],
)
def test_cmd_16_rpc_24_a_key_guards_both_transports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: Callable[[Path], tuple[str, str]]
) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", "sk-secret")
    with server_process(tmp_path, "--http", "0", *words(tmp_path)) as server:
        (address,) = server.wait_until_ready()["http"]
        url = f"http://{address}/v1/models"
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, timeout=HANGS_AFTER)
        key = {"authorization": "Bearer sk-secret"}
        with urllib.request.urlopen(urllib.request.Request(url, headers=key), timeout=HANGS_AFTER) as reply:
            assert reply.status == 200
        codes = []
        for metadata in ((), tuple(key.items()), (("authorization", "Bearer sk-other"),)):
            with server.connection() as channel:
                request = ask("Once", 2).SerializeToString()
                codes.append(call(channel, GENERATE, request, metadata=metadata).code)
        assert codes == ["UNAUTHENTICATED", "OK", "UNAUTHENTICATED"]
        assert "sk-secret" not in server.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--api-key", "a b"), "USAGE: --api-key: expected one key: printable ASCII without spaces"),
        (("--api-key", ""), "USAGE: --api-key: expected one key"),
        (("--api-key-env", "NO_SUCH"), "USAGE: $NO_SUCH: no key there"),
        (("--api-key", "a", "--api-key-file", "f"), "not allowed with argument --api-key"),
        (("--api-key-file", "absent"), "absent: cannot be read: No such file"),
    ],
)
def test_cmd_16_a_key_that_cannot_be_is_refused(tmp_path: Path, words: tuple[str, ...], said: str) -> None:
    ran = start_to_its_end(tmp_path, *words)
    (line,) = error_lines(ran.stderr)
    assert said in line and "a b" not in line


@pytest.mark.long
@pytest.mark.parametrize(
    ("option", "advice"),
    [
        ("--listen=", "other addresses with --listen and --http"),
        ("--http=", "another address with --http"),
        ("--set=listen.admin=", "another address with --set listen.admin"),
    ],
)
def test_lif_9_w18_an_address_in_use_is_reported_before_a_model_is_loaded(
    tmp_path: Path, option: str, advice: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with server_process(tmp_path, f"{option}{address}", "-m", f"{tmp_path}/none.gguf") as server:
            assert server.wait_for_end() == 75
            (line,) = server.stderr.splitlines()
            told = f"another process listens there; stop it, or choose {advice}"
            assert line == f"imp: error: ADDRESS_IN_USE: {address}: {told}"


def test_l11_w16_a_killed_server_leaves_nothing_that_is_in_the_way(tmp_path: Path) -> None:
    path = tmp_path / "imp.sock"
    with server_process(tmp_path, "--listen", f"unix://{path}") as first:
        first.wait_until_ready()
        with server_process(_folder(tmp_path, "second"), "--listen", f"unix://{path}") as second:
            assert second.wait_for_end() == 75
        with first.connection() as channel:
            assert call(channel, f"/{HEALTH}/Check").code == "OK"
        first.kill()
    assert path.is_socket()
    with (
        server_process(tmp_path, "--listen", f"unix://{path}") as third,
        third.connection() as channel,
    ):
        assert call(channel, GENERATE, ask("Once", 2).SerializeToString()).code == "OK"
        assert third.terminate() == 0
    assert not path.exists()


def _folder(parent: Path, name: str) -> Path:
    path = parent / name
    path.mkdir()
    return path


def test_y08_y15_l08_closed_streams_odd_locales_and_windows_line_ends_do_not_matter(tmp_path: Path) -> None:
    conf = tmp_path / "imp.conf"
    conf.write_bytes(b"[limits]\r\nmax_tokens = 4096\r\n")
    words = [sys.executable, "-P", "-m", "imp_service", "serve", "--listen", "127.0.0.1:0", "--ready-file", "ready"]
    environment = {**clean_environment(tmp_path), "LC_ALL": "tr_TR.UTF-8", "LANG": "de_DE", "TZ": ""}
    shell = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *words]
    with subprocess.Popen(shell, cwd=tmp_path, env=environment) as process:
        ready = tmp_path / "ready"
        give_up = time.monotonic() + HANGS_AFTER
        while not ready.exists():
            assert time.monotonic() < give_up
            with pytest.raises(subprocess.TimeoutExpired):  # the process must not end before
                process.wait(0.005)
        descriptors = {n: (Path(f"/proc/{process.pid}/fd") / str(n)).readlink() for n in (0, 1, 2)}
        assert all(str(target) == "/dev/null" for target in descriptors.values()), descriptors
        with grpc.insecure_channel(json.loads(ready.read_text())["grpc"][0]) as channel:
            assert call(channel, GENERATE, ask("Once", 2).SerializeToString()).code == "OK"
        process.terminate()
        assert process.wait(HANGS_AFTER) == 0


def test_a_model_whose_tokenizer_is_bad_is_refused_before_it_serves(tmp_path: Path) -> None:
    path = demo_with(tmp_path / "bad.gguf", b"tokenizer.ggml.model", b"tokenizer.ggml.modeX")
    with server_process(tmp_path, "-m", str(path)) as server:
        assert server.wait_for_end() == 65
        assert len(error_lines(server.stderr)) == 1 and not server.ready_file.exists()
