"""TLS of the data listeners: which clients may connect, errors at the start, and files that change while serving."""

from __future__ import annotations

import datetime
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import grpc
import pytest

from imp_service.cli.failure import exit_status
from imp_service.config.errors import ConfigError
from imp_service.serving.security import reloaded_files
from imp_service.serving.security.identity_files import IdentityFiles
from support.calls.raw_calls import HEALTH, call
from support.servers.certificates import Authority, Certificate
from support.servers.served import Served, ask, serve, tokens_of

ENDED = datetime.datetime(2021, 1, 1)


@cache
def authority(name: str = "ours") -> Authority:
    return Authority()


@cache
def of_ours(name: str) -> Certificate:
    return authority().issue()


def credentials(client: Certificate | None = None) -> grpc.ChannelCredentials:
    own = (client.key, client.cert) if client else (None, None)
    return grpc.ssl_channel_credentials(authority().cert, *own)


def settings_of(folder: Path, *, is_mutual: bool) -> list[str]:
    of_ours("server").write(folder)
    (folder / "ca.pem").write_bytes(authority().cert)
    settings = [f"tls.cert={folder}/cert.pem", f"tls.key={folder}/key.pem"]
    return [*settings, f"tls.client_ca={folder}/ca.pem"] if is_mutual else settings


@contextmanager
def served_at(folder: Path, *, is_mutual: bool = False) -> Iterator[Served]:
    with serve(*settings_of(folder, is_mutual=is_mutual), credentials=credentials(of_ours("client"))) as served:
        yield served


def can_call(served: Served, given: grpc.ChannelCredentials | None) -> bool:
    alone = (("grpc.use_local_subchannel_pool", 1),)
    with (
        grpc.secure_channel(served.address, given, alone) if given else grpc.insecure_channel(served.address, alone)
    ) as channel:
        ended = call(channel, f"/{HEALTH}/Check")
    assert ended.code in ("OK", "UNAVAILABLE"), ended
    return ended.code == "OK"


def shown_certificate(served: Served) -> bytes:
    """Returns the certificate that a new handshake presents."""
    host, _, port = served.address.rpartition(":")
    return ssl.get_server_certificate((host, int(port))).strip().encode()


def test_rpc_25_w12_plain_text_on_tls_is_turned_away_and_tls_is_not(tmp_path: Path) -> None:
    with served_at(tmp_path) as served:
        assert can_call(served, credentials())
        assert not can_call(served, None)
        assert not can_call(served, grpc.ssl_channel_credentials(authority("another").cert))


def test_rpc_25_w25_only_certificates_of_the_authority_and_of_today_come_in(tmp_path: Path) -> None:
    strangers = {
        "none": None,
        "expired": authority().issue(not_after=ENDED),
        "of another authority": authority("another").issue(),
        "its own": Authority(),
    }
    with served_at(tmp_path, is_mutual=True) as served:
        assert can_call(served, credentials(of_ours("client")))
        for what, client in strangers.items():
            assert not can_call(served, credentials(client)), what


@pytest.mark.long
@pytest.mark.parametrize(("version", "is_spoken"), [("TLSv1_1", False), ("TLSv1_2", True), ("TLSv1_3", True)])
@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_rpc_25_w25_nothing_older_than_tls_1_2_is_spoken(tmp_path: Path, version: str, is_spoken: bool) -> None:
    context = ssl.create_default_context(cadata=authority().cert.decode())
    context.set_ciphers("DEFAULT:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = ssl.TLSVersion[version]
    context.set_alpn_protocols(["h2"])
    with served_at(tmp_path) as served:
        host, _, port = served.address.rpartition(":")
        with socket.create_connection((host, int(port)), 10) as plain:
            try:
                with context.wrap_socket(plain, server_hostname="localhost") as spoken:
                    assert is_spoken and spoken.selected_alpn_protocol() == "h2"
            except ssl.SSLError:
                assert not is_spoken


def test_rpc_25_cfg_11_w23_a_new_certificate_is_shown_while_streams_go_on_and_a_bad_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reloaded_files, "CHECK_SECONDS", 0.01)
    folders = {name: tmp_path / name for name in ("first", "second", "bad")}
    for folder in folders.values():
        folder.mkdir()
        (folder / "ca.pem").write_bytes(authority().cert)
    current = tmp_path / "current"
    current.symlink_to(folders["first"])
    of_ours("second").write(folders["second"])
    of_ours("third").write(folders["bad"])
    (folders["bad"] / "key.pem").write_bytes(of_ours("server").key)

    def swap(name: str) -> None:
        (tmp_path / "swapped").symlink_to(folders[name])
        (tmp_path / "swapped").replace(current)

    with served_at(current) as served:
        tls = served.server._tls
        assert tls is not None  # narrows the type
        stream = served.inference.Generate(ask("Once upon a time", 300, stop={"max_tokens": 300, "ignore_eos": True}))
        messages = [next(stream)]
        assert shown_certificate(served) == of_ours("server").cert.strip()
        swap("second")
        served.wait_until(lambda: tls.files.value.cert == of_ours("second").cert, "the new certificate was read")
        assert shown_certificate(served) == of_ours("second").cert.strip()
        assert can_call(served, credentials())
        before = tls.files._seen
        swap("bad")
        served.wait_until(lambda: tls.files._seen != before, "the bad files were looked at")
        assert shown_certificate(served) == of_ours("second").cert.strip()
        messages += list(stream)
        assert len(tokens_of(messages)) == 300


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("broken", "content", "key"),
    [
        ("key.pem", "another", "tls.key"),
        ("key.pem", "", "tls.key"),
        ("cert.pem", "no certificate", "tls.cert"),
        ("ca.pem", "no certificate", "tls.client_ca"),
        ("cert.pem", None, "tls.cert"),
        ("key.pem", None, "tls.key"),
    ],
)
def test_w25_files_that_make_no_handshake_are_refused_at_the_start(
    tmp_path: Path, broken: str, content: str | None, key: str
) -> None:
    settings_of(tmp_path, is_mutual=True)
    if content is None:
        (tmp_path / broken).unlink()
    else:
        (tmp_path / broken).write_bytes(of_ours("client").key if content == "another" else content.encode())
    files = IdentityFiles(tmp_path / "cert.pem", tmp_path / "key.pem", tmp_path / "ca.pem")
    with pytest.raises(ConfigError) as refused:
        files.read()
    assert (exit_status(refused.value.reason), refused.value.where) == (78, key)
    assert "PRIVATE" not in refused.value.message
