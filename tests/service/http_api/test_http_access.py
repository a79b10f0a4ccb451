"""Access over HTTP: tokens, roles and tenants; TLS, mutual TLS, and certificate changes."""

from __future__ import annotations

import hashlib
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import grpc
import pytest

from imp_service.http_api.probes import Probes
from imp_service.http_api.server import make_routes
from imp_service.serving.security.identity_files import Identity
from imp_service.serving.security.reloaded_files import ReloadedFiles
from support.calls.raw_http import chat_head, exchange, head, send_on
from support.run.patience import HANGS_AFTER
from support.servers.certificates import Authority
from support.servers.http_served import HttpServed, serve_http

DOCUMENTATION = Path(__file__).resolve().parents[3] / "docs" / "openai.md"
LINES = {
    "all-roles": "data,read,admin *",
    "data-only": "data *",
    "read-only": "read *",
    "of-acme": "data,read acme",
}
BODY = {
    "messages": [{"role": "user", "content": "Hi"}],
    "max_tokens": 1,
    "max_output_tokens": 1,
    "prompt": "x",
    "input": "x",
    "tokens": [1],
    "inputs": "x",
    "query": "x",
    "documents": ["x"],
    "text_1": "x",
    "text_2": "x",
    "questions": [{"type": "predicate", "instructions": "x"}],
    "input_prefix": "x",
    "input_suffix": "x",
}
FIELDS = {
    "/v1/chat/completions": ("messages", "max_tokens"),
    "/v1/completions": ("prompt", "max_tokens"),
    "/v1/responses": ("input", "max_output_tokens"),
    "/v1/decisions": ("input", "questions"),
    "/v1/messages": ("messages", "max_tokens"),
    "/v1/messages/count_tokens": ("messages",),
    "/infill": ("input_prefix", "input_suffix", "max_tokens"),
    "/tokenize": ("prompt",),
    "/detokenize": ("tokens",),
    "/v1/embeddings": ("input",),
    "/embed": ("inputs",),
    "/v1/rerank": ("query", "documents"),
    "/v2/rerank": ("query", "documents"),
    "/v1/score": ("text_1", "text_2"),
}
# What the built-in model cannot do. Such a call is refused after the check of its caller.
UNSUPPORTED = ("embeddings", "embed", "rerank", "score", "infill")
# Path -> the required role; "" any of data and read; None: no role.
ROLES = {
    "/v1/chat/completions": "data",
    "/chat/completions": "data",
    "/v1/completions": "data",
    "/completions": "data",
    "/v1/responses": "data",
    "/responses": "data",
    "/v1/decisions": "data",
    "/decisions": "data",
    "/v1/messages": "data",
    "/messages": "data",
    "/v1/messages/count_tokens": "",
    "/messages/count_tokens": "",
    "/infill": "data",
    "/tokenize": "read",
    "/detokenize": "read",
    "/v1/embeddings": "data",
    "/embeddings": "data",
    "/embed": "data",
    "/v1/rerank": "data",
    "/rerank": "data",
    "/v2/rerank": "data",
    "/v1/score": "data",
    "/score": "data",
    "/v1/models": "",
    "/models": "",
    "/v1/models/imp-demo": "",
    "/models/imp-demo": "",
    "/version": "read",
    "/load": "read",
    "/metrics": "read",
    "/health": None,
    "/health/live": None,
}


def token_file(folder: Path) -> Path:
    path = folder / "tokens"
    lines = (f"{hashlib.sha256(word.encode()).hexdigest()} {rest}\n" for word, rest in LINES.items())
    path.write_text("".join(lines))
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    folder = tmp_path_factory.mktemp("tokens")
    metadata = (("authorization", "Bearer all-roles"),)
    with serve_http(f"auth.token_file={token_file(folder)}", metadata=metadata) as it:
        yield it


def status_of(http: HttpServed, path: str, key: str | None, **headers: str) -> int:
    client = http.connect(key)
    names = next((names for known, names in FIELDS.items() if path in (known, known.removeprefix("/v1"))), None)
    if names is None:
        return client.get(path, **headers).status
    return client.post(path, {name: BODY[name] for name in names}, **headers).status


def test_htp_8_each_path_is_in_the_table_of_roles(http: HttpServed) -> None:
    routes = make_routes(http.served.state, Probes(http.served.state)).all
    paths = {path.replace("{id}", "imp-demo") for route in routes for path in route.paths}
    assert paths - {"/"} == ROLES.keys()


def test_htp_8_the_documentation_names_each_path(http: HttpServed) -> None:
    named = set(re.findall(r"`(?:[A-Z]+ )?(/[\w/]*)`", DOCUMENTATION.read_text()))
    routes = make_routes(http.served.state, Probes(http.served.state)).all
    assert {route.path.replace("{id}", "NAME") for route in routes} - {"/"} <= named


@pytest.mark.few(7)
@pytest.mark.parametrize("path", ROLES)
def test_htp_8_every_path_asks_for_its_role(http: HttpServed, path: str) -> None:
    good = 400 if path.endswith(UNSUPPORTED) else 200
    role = ROLES[path]
    for key in ("all-roles", "data-only", "read-only"):
        is_allowed = role is None or key.startswith(("all", role))
        assert status_of(http, path, key) == (good if is_allowed else 403), key
    for key in (None, "nosuch"):
        assert status_of(http, path, key) == (good if role is None else 401), key


def test_htp_8_a_key_comes_in_either_header(http: HttpServed) -> None:
    assert status_of(http, "/v1/models", None, x_api_key="read-only") == 200
    assert status_of(http, "/v1/models", None, x_api_key="nosuch") == 401
    # Authorization takes precedence.
    assert status_of(http, "/v1/models", "nosuch", x_api_key="read-only") == 401
    reply = http.client.get("/v1/models")
    assert reply.refusal == (401, "invalid_api_key", None)
    assert (reply.headers["www-authenticate"], reply.error["type"]) == ("Bearer", "authentication_error")


def test_htp_8_a_token_of_one_tenant_calls_for_no_other(http: HttpServed) -> None:
    assert status_of(http, "/v1/completions", "of-acme", imp_tenant="acme") == 200
    assert status_of(http, "/v1/completions", "of-acme", imp_tenant="other") == 403


@pytest.mark.long
def test_htp_8_nothing_of_a_body_is_read_without_a_key(http: HttpServed) -> None:
    """The answer comes although the body is never sent."""
    reply = exchange(http, chat_head(1000))
    assert (reply.status, reply.has_closed) == (401, True)


def test_htp_8_metrics_are_public_where_the_settings_say_so(tmp_path: Path) -> None:
    metadata = (("authorization", "Bearer all-roles"),)
    settings = (f"auth.token_file={token_file(tmp_path)}", "http.public_metrics=true")
    with serve_http(*settings, metadata=metadata) as http:
        assert http.client.get("/metrics").status == 200
        assert http.client.get("/v1/models").status == 401


def trusting(authority: bytes) -> ssl.SSLContext:
    return ssl.create_default_context(cadata=authority.decode())


def reread_identity(http: HttpServed) -> None:
    identity = cast(ReloadedFiles[Identity], http.served.access.identity)
    http.served.call(identity.check_files)


def test_htp_8_certificates_change_while_streams_run(tmp_path: Path) -> None:
    old, new = Authority(), Authority()
    cert, key = old.issue().write(tmp_path)
    credentials = grpc.ssl_channel_credentials(old.cert + new.cert)
    with serve_http(f"tls.cert={cert}", f"tls.key={key}", credentials=credentials, tls=trusting(old.cert)) as http:
        body = {"prompt": "the cat", "max_tokens": 300, "ignore_eos": True, "max_chunk_tokens": 1}
        stream = http.client.streaming("/v1/completions", body)
        next(stream)
        new.issue().write(tmp_path)
        reread_identity(http)
        with pytest.raises(ssl.SSLCertVerificationError):
            http.client.get("/v1/models")
        http._tls = trusting(new.cert)
        assert http.client.get("/v1/models").status == 200
        *_, events = stream
        assert events.has_done


@pytest.mark.long
def test_htp_8_clients_prove_who_they_are_and_their_authority_changes(tmp_path: Path) -> None:
    authority = Authority()
    (tmp_path / "server").mkdir()
    cert, key = authority.issue().write(tmp_path / "server")
    old, new = Authority(), Authority()
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.cert)

    def context(who: Authority | None) -> ssl.SSLContext:
        made = trusting(authority.cert)
        if who is not None:
            folder = tmp_path / str(id(who))
            folder.mkdir(exist_ok=True)
            made.load_cert_chain(*who.issue().write(folder))
        return made

    client = old.issue()
    credentials = grpc.ssl_channel_credentials(authority.cert, client.key, client.cert)
    settings = (f"tls.cert={cert}", f"tls.key={key}", f"tls.client_ca={ca}")
    with serve_http(*settings, credentials=credentials, tls=context(old)) as http:
        http.served.is_checked = False  # the client's certificate is of the old authority

        def is_let_in(who: Authority | None) -> bool:
            http._tls = context(who)
            try:
                return http.client.get("/v1/models").status == 200
            except (ssl.SSLError, ConnectionError):
                return False

        assert [is_let_in(each) for each in (old, new, None)] == [True, False, False]
        ca.write_bytes(new.cert)
        reread_identity(http)
        assert [is_let_in(each) for each in (old, new, None)] == [False, True, False]


@contextmanager
def resumable(http: HttpServed, session: ssl.SSLSession | None = None) -> Iterator[ssl.SSLSocket]:
    """Yields a connection that offers the session, after a request: TLS 1.3 sends tickets with the first data."""
    context = http._tls
    assert isinstance(context, ssl.SSLContext)
    plain = socket.create_connection(("127.0.0.1", http.address.port), HANGS_AFTER)
    with plain, context.wrap_socket(plain, server_hostname="localhost", session=session) as connection:
        assert send_on(connection, head(), 1).status == 200
        yield connection


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3], ids=["1.2", "1.3"])


@VERSIONS
@pytest.mark.parametrize("reloads", [False, True])
def test_htp_8_w25_no_resumed_session_outlives_its_authority(
    tmp_path: Path, version: ssl.TLSVersion, reloads: bool
) -> None:
    """With client certificates no session is resumed by a ticket; none at all once the authority has changed."""
    authority, old, new = Authority(), Authority(), Authority()
    (tmp_path / "server").mkdir()
    cert, key = authority.issue().write(tmp_path / "server")
    ca = tmp_path / "ca.crt"
    ca.write_bytes(old.cert)
    client = old.issue()
    context = trusting(authority.cert)
    context.minimum_version = context.maximum_version = version
    context.load_cert_chain(*client.write(tmp_path))
    credentials = grpc.ssl_channel_credentials(authority.cert, client.key, client.cert)
    settings = (f"tls.cert={cert}", f"tls.key={key}", f"tls.client_ca={ca}")
    with serve_http(*settings, credentials=credentials, tls=context) as http:
        http.served.is_checked = False  # the client's certificate is of the old authority
        with resumable(http) as first:
            session = first.session
        if not reloads:
            assert session is None or not session.has_ticket
            with resumable(http, session) as second:
                assert not (second.session_reused and version is ssl.TLSVersion.TLSv1_3)
            return
        ca.write_bytes(new.cert)
        reread_identity(http)
        # In TLS 1.3 a client learns at its first read that it was refused.
        with pytest.raises((ssl.SSLError, ConnectionError, AssertionError)), resumable(http, session):
            pass


@VERSIONS
def test_htp_8_without_client_certificates_sessions_are_resumed(tmp_path: Path, version: ssl.TLSVersion) -> None:
    authority = Authority()
    cert, key = authority.issue().write(tmp_path)
    context = trusting(authority.cert)
    context.minimum_version = context.maximum_version = version
    settings = (f"tls.cert={cert}", f"tls.key={key}")
    with serve_http(*settings, credentials=grpc.ssl_channel_credentials(authority.cert), tls=context) as http:
        with resumable(http) as first:
            session = first.session
        with resumable(http, session) as second:
            assert second.session_reused
