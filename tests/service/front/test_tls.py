"""Servers that speak TLS: a front verifies them, and asks a server by the name that it was given."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSSLError
from aiohttp.client_reqrep import ConnectionKey

from imp_service.config import ConfigError, read_settings
from imp_service.config.server_settings import LogSettings
from imp_service.front.relay.connections import Connections, trust_in
from imp_service.front.relay.names import Place
from imp_service.front.relay.server import FrontServer
from imp_service.front.relay.upstreams import Upstreams
from imp_service.telemetry.log import Log
from support.servers.certificates import Authority, Certificate
from support.servers.front_served import Got, front_served
from support.servers.scripted_engine import ScriptedEngine, golden, running, streaming

CALLED: list[str | None] = []


def context_of(certificate: Certificate, folder: Path) -> ssl.SSLContext:
    """That of a server, which notes the names by which it is called."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate.write(folder))
    context.sni_callback = lambda _, name, __: CALLED.append(name)  # type: ignore[assignment,func-returns-value]
    return context


def asked(to: str, engine: ScriptedEngine, ca: Path | None, hosts: Sequence[str] = ()) -> Got:
    """The answer of a front before this engine. `to` has its port; names are those of `hosts`."""

    async def run() -> Got:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(*_: Any, **__: Any) -> Any:
            return [(2, 1, 6, "", (host, engine.port)) for host in hosts]

        async with running(engine):
            if hosts:
                loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign]
            address = to.format(port=engine.port)
            async with front_served([address], hold=0.5, ca=None if ca is None else str(ca)) as served:
                return await served.stream()

    return asyncio.run(run())


@pytest.fixture
def authority(tmp_path: Path) -> tuple[Authority, Path]:
    """An authority, and the file of its certificate."""
    made = Authority()
    (tmp_path / "ca.pem").write_bytes(made.cert)
    return made, tmp_path / "ca.pem"


@pytest.mark.parametrize(
    ("to", "hosts", "called"),
    [
        ("https://localhost:{port}", ["127.0.0.1"], "localhost"),
        ("https://localhost:{port}", ["127.0.0.1", "127.0.0.2"], "localhost"),
        ("https://127.0.0.1:{port}", [], None),
    ],
)
def test_frt_6_a_server_with_tls_answers_if_an_authority_of_the_setting_vouches_for_its_name(
    authority: tuple[Authority, Path], tmp_path: Path, to: str, hosts: list[str], called: str | None
) -> None:
    engine = ScriptedEngine(streaming(4), tls=context_of(authority[0].issue(), tmp_path), host="0.0.0.0")
    CALLED.clear()
    got = asked(to, engine, authority[1], hosts)
    assert (got.status, got.content) == (200, golden(4))
    assert set(CALLED) == {called}


@pytest.mark.parametrize(
    ("to", "other", "has_ca"),
    [
        ("https://other.example:{port}", False, True),
        ("https://localhost:{port}", True, True),
        ("https://localhost:{port}", False, False),
        ("localhost:{port}", False, True),
    ],
    ids=["another name", "another authority", "the system's authorities", "no TLS"],
)
def test_frt_6_a_server_that_is_not_verified_gets_no_request(
    authority: tuple[Authority, Path], tmp_path: Path, to: str, other: bool, has_ca: bool
) -> None:
    issued = (Authority() if other else authority[0]).issue()
    engine = ScriptedEngine(streaming(4), tls=context_of(issued, tmp_path))
    got = asked(to, engine, authority[1] if has_ca else None, ["127.0.0.1"])
    assert (got.status, got.error["code"], engine.asked, engine.n_probes) == (503, "not_ready", [], 0)


def test_frt_6_authorities_are_read_again_when_their_file_changes(
    authority: tuple[Authority, Path], tmp_path: Path
) -> None:
    settings = read_settings(None, [f"front.ca={authority[1]}", 'listen.http=["127.0.0.1:0"]'], variables={}).settings
    log = Log(LogSettings(level="error"))
    server = FrontServer(settings, log)
    first = server.trust
    assert first is not None  # narrows
    before = first()
    authority[1].write_bytes(Authority().cert)
    assert server._authorities is not None  # narrows
    server._authorities.check_files()
    assert first() is not before
    asyncio.run(server.stop())
    log.close()


@pytest.mark.parametrize("content", [None, b"", b"-----BEGIN CERTIFICATE-----\n"])
def test_frt_6_a_file_without_authorities_is_a_wrong_setting(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "ca.pem"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"front\.ca"):
        trust_in(str(path))


def test_frt_6_words_between_authorities_may_be_of_any_language(
    authority: tuple[Authority, Path], tmp_path: Path
) -> None:
    path = tmp_path / "named.pem"
    path.write_bytes("# Főtanúsítvány\n".encode() + authority[0].cert + "# Größe\n".encode("latin-1"))
    assert len(trust_in(str(path)).get_ca_certs()) == 1


def test_frt_6_servers_at_one_address_are_told_apart_by_their_names() -> None:
    names = ["https://a.example:9", "https://b.example:9", "c.example:9"]

    async def run() -> set[str | None]:
        async def getaddrinfo(*_: Any, **__: Any) -> Any:
            return [(2, 1, 6, "", ("127.0.0.1", 9))]

        asyncio.get_running_loop().getaddrinfo = getaddrinfo  # type: ignore[method-assign]
        log = Log(LogSettings(level="error"))
        upstreams = Upstreams(names, log=log)
        await upstreams.start()
        found = {upstream.place.tls_name for upstream in upstreams.all}
        await upstreams.stop()
        log.close()
        return found

    assert asyncio.run(run()) == {"a.example", "b.example", None}


def test_frt_6_a_failure_of_tls_is_told_again_once_the_server_was_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    told = []

    async def fails(*_: Any) -> None:
        raise ClientSSLError(ConnectionKey("a", 9, True, True, None, None, None), OSError("expired"))

    monkeypatch.setattr(Connections, "send", fails)
    monkeypatch.setattr(Log, "warning", lambda *_, **fields: told.append(fields["message"]))

    async def run() -> None:
        log = Log(LogSettings(level="error"))
        upstreams = Upstreams(log=log)
        upstream = upstreams.add(Place("127.0.0.1:9", "a.example"))
        assert upstream is not None  # narrows
        await upstream._ask("/")
        await upstream._ask("/")
        assert len(told) == 1
        upstream.set_ready(is_ready=True)
        await upstream._ask("/")
        await upstreams.stop()
        log.close()

    asyncio.run(run())
    assert len(told) == 2
