"""The same model in this process, behind a server, and behind one with TLS that wants a token."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import grpc
import pytest

import imp_service
from imp_service import Client, LanguageModel
from support.always_on import nothing_left
from support.certificates import make_certificate
from support.served import Served, serve

__all__ = ["nothing_left"]

TOKEN = "a-token-of-the-tests"
WAYS = ("load", "connect", "connect over TLS")


@contextmanager
def secured(folder: Path, *settings: str) -> Iterator[Served]:
    """A server with TLS and tokens; ca.pem in the folder has its authority."""
    authority = make_certificate("an authority")
    make_certificate("server", authority).write(folder)
    (folder / "ca.pem").write_bytes(authority.cert)
    (folder / "tokens").write_text(f"{hashlib.sha256(TOKEN.encode()).hexdigest()} data,read *\n")
    (folder / "tokens").chmod(0o600)
    files = [f"tls.cert={folder}/cert.pem", f"tls.key={folder}/key.pem", f"auth.token_file={folder}/tokens"]
    credentials = grpc.ssl_channel_credentials(authority.cert)
    caller = (("authorization", f"Bearer {TOKEN}"),)
    with serve(*files, *settings, credentials=credentials, metadata=caller) as served:
        yield served


@pytest.fixture(scope="module")
def library() -> Iterator[LanguageModel]:
    with imp_service.load(None, "device.threads=1") as loaded:
        yield loaded


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve() as server:
        yield server


@pytest.fixture(scope="module", params=WAYS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LanguageModel | Client]:
    """A program of the library moves to a server by the one line that makes the model."""
    with ExitStack() as ends:
        if request.param == "load":
            yield request.getfixturevalue("library")
        elif request.param == "connect":
            yield ends.enter_context(imp_service.connect(request.getfixturevalue("served").address))
        else:
            folder = tmp_path_factory.mktemp("secured")
            server = ends.enter_context(secured(folder))
            yield ends.enter_context(imp_service.connect(server.address, ca=f"{folder}/ca.pem", token=TOKEN))
