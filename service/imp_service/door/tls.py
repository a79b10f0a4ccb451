"""TLS of the HTTP listeners. Each handshake uses the files as they are then. Open connections are not affected."""

from __future__ import annotations

import os
import ssl

from imp_service.serving.security.identity_files import Identity
from imp_service.serving.security.reloaded_files import ReloadedFiles


def server_context(files: ReloadedFiles[Identity]) -> ssl.SSLContext:
    """The context of a listener. Its certificate, key and client authorities follow the files."""
    first = _context(files.value)
    current = files.value, first

    def choose(connection: ssl.SSLObject, name: str | None, context: ssl.SSLContext) -> None:
        nonlocal current
        if files.value is not current[0]:
            current = files.value, _context(files.value)
        connection.context = current[1]

    # Python calls it at every handshake, also if the client names no host.
    first.sni_callback = choose
    return first


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
    return context
