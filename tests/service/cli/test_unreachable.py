"""The message about an unreachable server names what to change, for each cause."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from support.servers.certificates import Authority
from support.servers.scripted_server import scripted_server, story

ONCE = ("--attempts", "1", "--deadline", "30s")


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """PEM files of an authority, a server, a client and a stranger, and files that are no PEM."""
    ours, other = Authority(), Authority()
    pairs = {"server": ours.issue(), "client": ours.issue()}
    (tmp_path / "ca.pem").write_bytes(ours.cert)
    (tmp_path / "other.pem").write_bytes(other.cert)
    (tmp_path / "none.pem").write_text("no certificate\n")
    for name, pair in {**pairs, "stranger": other.issue()}.items():
        (tmp_path / f"{name}.crt").write_bytes(pair.cert)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
    return tmp_path


@contextlib.contextmanager
def server(files: Path, speaks: str) -> Iterator[str]:
    """Yields the address of a server that speaks plain text, TLS, or TLS with client certificates."""
    script = {"Generate": lambda request, context: iter(story("Once"))}
    key, cert = (files / "server.key").read_bytes(), (files / "server.crt").read_bytes()
    authority = (files / "ca.pem").read_bytes()
    credentials = {
        "plain": None,
        "tls": grpc.ssl_server_credentials([(key, cert)]),
        "mutual": grpc.ssl_server_credentials([(key, cert)], authority, True),
    }[speaks]
    with scripted_server(credentials, **script) as address:
        yield address


# The server's protocol, the options of the call, its exit status and its message.
CASES = [
    ("plain", ("--tls",), 69, "the server does not use TLS, expected a call without --tls"),
    ("plain", ("--ca", "ca.pem"), 69, "the server does not use TLS"),
    ("tls", (), 69, "it may expect TLS: --tls, --ca FILE"),
    ("tls", ("--tls",), 69, "not signed by a well-known authority, expected --ca FILE"),
    ("tls", ("--ca", "other.pem"), 69, "is not signed by the authority in --ca other.pem"),
    ("tls", ("--ca", "none.pem"), 64, "none.pem: holds no certificate, expected one in PEM"),
    ("tls", ("--ca", "absent.pem"), 74, "absent.pem: No such file or directory"),
    ("tls", ("--ca", "."), 74, ".: Is a directory"),
    ("mutual", ("--ca", "ca.pem"), 69, "a client certificate: --cert and --key"),
    ("mutual", ("--ca", "ca.pem", "--cert", "stranger.crt", "--key", "stranger.key"), 69, "not trust --cert stranger"),
    ("mutual", ("--ca", "ca.pem", "--cert", "client.crt", "--key", "server.key"), 69, "do not belong together"),
    ("mutual", ("--ca", "ca.pem", "--cert", "client.crt", "--key", "client.crt"), 64, "client.crt: holds no private"),
]


@pytest.mark.few(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join([case[0], *case[1]]))
def test_cmd_5_tls_that_does_not_fit_is_reported(case, call, files: Path) -> None:
    speaks, options, status, words = case
    with server(files, speaks) as address:
        ended, out, err = call("call", "hello", "--target", address, *ONCE, *options)
    line = err.splitlines()[-1]
    assert (ended, out) == (status, "")
    assert line.startswith("imp: error: ") and words in line, line
    if status == 69:
        assert line.startswith(f"imp: error: UNAVAILABLE: {address}: "), line


def test_cmd_5_control_the_right_files_reach_each_server(call, files: Path) -> None:
    mutual = ("--ca", "ca.pem", "--cert", "client.crt", "--key", "client.key")
    for speaks, options in (("plain", ()), ("tls", ("--ca", "ca.pem")), ("mutual", mutual)):
        with server(files, speaks) as address:
            assert call("call", "hello", "--target", address, *ONCE, *options)[:2] == (0, "Once\n")


@pytest.mark.parametrize(
    "words",
    [("call", "hello", *ONCE), ("top", "--once", "--attempts", "1"), ("bench", "--reps", "1", "--streams", "1")],
)
def test_tls_to_a_port_that_speaks_none_is_reported_in_one_line(imp, words: tuple[str, ...]):
    """gRPC's own log lines do not appear."""
    with scripted_server(Generate=lambda request, context: iter(story("Once"))) as address:
        option = "--server" if words[0] == "bench" else "--target"
        result = imp(*words, "--tls", option, address)
    assert (result.returncode, result.stdout) == (69, b"")
    (line,) = result.stderr.decode().splitlines()
    assert line.startswith("imp: error: UNAVAILABLE: ")


@contextlib.contextmanager
def _free_port() -> Iterator[str]:
    """Yields the address of a socket that is bound but does not listen."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


@contextlib.contextmanager
def _web_server() -> Iterator[str]:
    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(100)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


@contextlib.contextmanager
def _absent_socket() -> Iterator[str]:
    yield "unix:absent.sock"


COMMANDS = {
    "call": ("call", "hello", *ONCE, "--target"),
    "chat": ("call", "chat", "hello", *ONCE, "--target"),
    "info": ("call", "info", *ONCE, "--target"),
    "top": ("top", "--once", "--attempts", "1", "--target"),
    "bench": ("bench", "--streams", "1", "--reps", "1", "--server"),
}


@pytest.mark.few(7)
@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(
    ("place", "words"),
    [(_free_port, "nothing listens there"), (_absent_socket, "nothing listens there"), (_web_server, "speaks HTTP/1")],
)
def test_cmd_5_an_address_that_does_not_answer_is_reported(place, words: str, command: str, call) -> None:
    with place() as address:
        status, out, err = call(*COMMANDS[command], address)
    assert (status, out) == (69, "")
    assert err.splitlines()[-1].startswith(f"imp: error: UNAVAILABLE: {address}: ") and words in err


def test_cmd_5_an_unknown_host_is_reported(call) -> None:
    status, _, err = call("call", "hello", *ONCE, "--target", "no-such-host.invalid")
    assert (status, "no-such-host.invalid:50051: the name of the host is not known" in err) == (69, True)


@pytest.mark.parametrize("words", [("call", "hello"), ("call", "chat", "hello"), ("call", "info"), ("top", "--once")])
def test_cmd_5_the_environment_names_the_server(words: tuple[str, ...], call, monkeypatch) -> None:
    with _free_port() as address:
        monkeypatch.setenv("IMP_TARGET", address)
        status, _, err = call(*words, "--attempts", "1")
        assert (status, f"UNAVAILABLE: {address}: nothing listens there" in err) == (69, True)
        monkeypatch.setenv("IMP_TARGET", "http://imp")
        status, _, err = call(*words, "--target", address, "--attempts", "1")  # the option overrides the variable
        assert (status, f"UNAVAILABLE: {address}: " in err) == (69, True)
        status, _, err = call(*words)
        assert (status, "USAGE: $IMP_TARGET: http://imp: is a URL" in err) == (64, True)
