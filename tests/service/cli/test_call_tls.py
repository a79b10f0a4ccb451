"""imp call over TLS: which servers it trusts, and how it identifies itself."""

from __future__ import annotations

import grpc
import pytest

from support.certificates import Authority
from support.scripted_server import scripted_server, story

ONCE = ("--attempts", "1", "--deadline", "20s")


@pytest.fixture
def files(tmp_path):
    """PEM files of an authority, a server, a client and a stranger, by name."""
    ours, other = Authority(), Authority()
    pairs = {
        "server": ours.issue(),
        "client": ours.issue(),
        "stranger": other.issue(),
    }
    (tmp_path / "ca.pem").write_bytes(ours.cert)
    (tmp_path / "other.pem").write_bytes(other.cert)
    for name, pair in pairs.items():
        (tmp_path / f"{name}.crt").write_bytes(pair.cert)
        (tmp_path / f"{name}.key").write_bytes(pair.key)
    return tmp_path


def server(files, **options):
    key, cert = (files / "server.key").read_bytes(), (files / "server.crt").read_bytes()
    credentials = grpc.ssl_server_credentials([(key, cert)], **options)
    return scripted_server(credentials, Generate=lambda request, context: iter(story("Once")))


def test_a_server_is_trusted_by_its_authority_only(call, files):
    with server(files) as address:
        to = ("call", "hello", "--target", address, *ONCE)
        assert call(*to, "--ca", "ca.pem")[:2] == (0, "Once\n")
        for words in (("--ca", "other.pem"), ("--tls",), ()):
            status, out, err = call(*to, *words)
            assert (status, out) == (69, ""), words
            assert err.splitlines()[-1].startswith("imp: error: UNAVAILABLE: ")


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


def test_a_caller_shows_its_certificate(call, files):
    with server(files, root_certificates=(files / "ca.pem").read_bytes(), require_client_auth=True) as address:
        to = ("call", "hello", "--target", address, "--ca", "ca.pem", *ONCE)
        assert call(*to, "--cert", "client.crt", "--key", "client.key")[:2] == (0, "Once\n")
        assert call(*to)[0] == 69
        assert call(*to, "--cert", "stranger.crt", "--key", "stranger.key")[0] == 69


def test_a_file_that_is_not_there(call):
    status, out, err = call("call", "hello", "--ca", "no-such.pem")
    assert (status, out, err) == (74, "", "imp: error: IO_FAILED: no-such.pem: No such file or directory\n")
