"""A server with TLS that requires a token."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import grpc

from support.servers.certificates import Authority
from support.servers.served import Served, serve

TOKEN = "a-token-of-the-tests"


@contextmanager
def secured(folder: Path, *settings: str) -> Iterator[Served]:
    """Yields a server with TLS and tokens; ca.pem in the folder is its authority."""
    authority = Authority()
    authority.issue().write(folder)
    (folder / "ca.pem").write_bytes(authority.cert)
    (folder / "tokens").write_text(f"{hashlib.sha256(TOKEN.encode()).hexdigest()} data,read *\n")
    (folder / "tokens").chmod(0o600)
    files = [f"tls.cert={folder}/cert.pem", f"tls.key={folder}/key.pem", f"auth.token_file={folder}/tokens"]
    credentials = grpc.ssl_channel_credentials(authority.cert)
    caller = (("authorization", f"Bearer {TOKEN}"),)
    with serve(*files, *settings, credentials=credentials, metadata=caller) as served:
        yield served
