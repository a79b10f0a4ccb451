"""TLS of the HTTP listeners. Each handshake uses the files as they are then. Open connections are not affected."""

from __future__ import annotations

import os
import ssl
from typing import Any

from imp_service.serving.security.identity_files import Identity
from imp_service.serving.security.reloaded_files import ReloadedFiles


def server_context(files: ReloadedFiles[Identity]) -> ssl.SSLContext:
    """The context of a listener. Its certificate, key and client authorities follow the files."""
    return _Following(files)


class _Following(ssl.SSLContext):
    """Makes each connection with the context of the files in force.

    Sessions belong to the context that made them, so none is resumed once the files have changed. A context that is
    replaced during a handshake would leave the sessions, which carry a proof of the client, to the first context.
    """

    def __new__(cls, files: ReloadedFiles[Identity]) -> _Following:
        return super().__new__(cls, ssl.PROTOCOL_TLS_SERVER)

    def __init__(self, files: ReloadedFiles[Identity]) -> None:
        self._files = files
        self._current = files.value, _context(files.value)

    def wrap_bio(self, *arguments: Any, **named: Any) -> ssl.SSLObject:
        """Called by asyncio for each connection."""
        if self._files.value is not self._current[0]:
            identity = self._files.value
            self._current = identity, _context(identity)
        return self._current[1].wrap_bio(*arguments, **named)


def _context(identity: Identity) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    # The ssl module loads a certificate and its key only from a file. This one is in memory, not on a disk.
    with os.fdopen(os.memfd_create("imp-tls"), "wb") as file:
        file.write(identity.key + b"\n" + identity.cert)
        file.flush()
        context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
    if identity.client_ca is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=identity.client_ca.decode())
        # A resumed session would not prove again who the client is, and would get the next ticket.
        context.options |= ssl.OP_NO_TICKET
        context.num_tickets = 0
    return context
