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
from support.run.pauses import pause_loop
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


def asked(
    to: str, engine: ScriptedEngine, ca: Path | None, hosts: Sequence[str] = (), own: Sequence[str] = (), **headers: str
) -> Got:
    """The answer of a front before this engine. `to` has its port; names are those of `hosts`, `own` the front's."""

    async def run() -> Got:
        loop = asyncio.get_running_loop()

        async def getaddrinfo(*_: Any, **__: Any) -> Any:
            return [(2, 1, 6, "", (host, engine.port)) for host in hosts]

        async with running(engine):
            if hosts:
                loop.getaddrinfo = getaddrinfo  # type: ignore[method-assign]
            address = to.format(port=engine.port)
            async with front_served([address], hold=0.5, ca=None if ca is None else str(ca), hosts=own) as served:
                body = {"stream": True}
                return await served.get("/v1/chat/completions", "POST", json=body, headers=headers)

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


FRONT = {"host": "127.0.0.1:8000"}
SAME, OTHER = {"origin": "http://127.0.0.1:8000"}, {"origin": "https://evil.example"}


@pytest.mark.parametrize(
    ("sent", "own", "got"),
    [
        (FRONT, [], {"host": "localhost:{port}"}),
        ({"host": "front"}, [], {"host": "localhost:{port}"}),
        ({"host": "chat.example.com"}, ["chat.example.com"], {"host": "localhost:{port}"}),
        # A page of this front stays one of the same site.
        ({**FRONT, **SAME}, [], {"host": "localhost:{port}", "origin": "https://localhost:{port}"}),
        ({**FRONT, **OTHER}, [], {"host": "localhost:{port}", **OTHER}),
        # A name that another site may have resolved to the front: the server can refuse it.
        ({"host": "evil.example", **OTHER}, [], {"host": "evil.example", **OTHER}),
        ({"host": "chat.example.com"}, [], {"host": "chat.example.com"}),
    ],
)
def test_frt_6_a_server_with_tls_is_asked_as_the_host_of_its_certificate(
    authority: tuple[Authority, Path], tmp_path: Path, sent: dict[str, str], own: list[str], got: dict[str, str]
) -> None:
    engine = ScriptedEngine(streaming(4), tls=context_of(authority[0].issue(), tmp_path), host="0.0.0.0")
    assert asked("https://localhost:{port}", engine, authority[1], ["127.0.0.1"], own, **sent).status == 200
    (pairs,) = (each.pairs for each in engine.asked)
    found = sorted(pair for pair in pairs if pair[0] in ("host", "origin"))
    assert found == [(name, value.format(port=engine.port)) for name, value in got.items()]
    assert engine.probed_hosts == {f"localhost:{engine.port}"}


def test_frt_6_a_server_without_tls_gets_the_host_of_the_client() -> None:
    engine = ScriptedEngine(streaming(4))
    assert asked("localhost:{port}", engine, None, ["127.0.0.1"], **FRONT, **SAME).status == 200
    (headers,) = (each.headers for each in engine.asked)
    assert (headers["host"], headers["origin"]) == (FRONT["host"], SAME["origin"])


@pytest.mark.parametrize(
    ("to", "host"),
    [
        ("https://imp.example.com:443", "imp.example.com"),
        ("https://imp.example.com:8443", "imp.example.com:8443"),
        ("https://[::1]:443", "[::1]"),
        ("imp.example.com:80", None),
    ],
)
def test_frt_6_the_usual_port_of_tls_is_no_part_of_a_host(to: str, host: str | None) -> None:
    assert Place.of(to).own_host == host


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


class Alive:
    """The response of a server that is ready."""

    status = 200

    async def __aenter__(self) -> None:
        """It has come."""

    async def __aexit__(self, *_: object) -> None:
        """It is over."""


def test_frt_6_a_failure_of_tls_is_told_again_once_the_server_was_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    is_expired = True

    async def send(*_: Any) -> Alive:
        if is_expired:
            raise ClientSSLError(ConnectionKey("a", 9, True, True, None, None, None), OSError("expired"))
        return Alive()

    monkeypatch.setattr(Connections, "send", send)
    monkeypatch.setattr(Log, "warning", lambda *_, **fields: told.append(fields["message"]))

    async def run() -> None:
        nonlocal is_expired
        log = Log(LogSettings(level="error"))
        upstreams = Upstreams(log=log)
        upstream = upstreams.add(Place("127.0.0.1:9", "a.example"))
        assert upstream is not None  # narrows
        await pause_loop(0.3)
        is_expired = False
        while not upstream.is_ready:
            await pause_loop(0.01)
        is_expired = True
        upstream.failed()
        await pause_loop(0.3)
        await upstreams.stop()
        log.close()

    asyncio.run(run())
    assert ["away: Cannot connect" in line for line in told] == [True, True]
