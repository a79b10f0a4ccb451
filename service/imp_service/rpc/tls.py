"""TLS of the data listeners. gRPC asks at each handshake whether the files have changed."""

from __future__ import annotations

from typing import Any

import grpc

from imp_service.serving.security.identity_files import Identity
from imp_service.serving.security.reloaded_files import ReloadedFiles


class TlsCredentials:
    """Credentials for gRPC, which asks for new files at each handshake. Open connections are not affected."""

    def __init__(self, files: ReloadedFiles[Identity]) -> None:
        self.files = files
        self._given = files.value
        requires_client = self._given.client_ca is not None
        self.credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(self._given), self._fetch, require_client_authentication=requires_client
        )

    def _fetch(self) -> Any:
        """The new configuration, or None if the files have not changed. Runs on a thread of gRPC."""
        current = self.files.value
        if current is self._given:
            return None
        self._given = current
        return _configuration(current)


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(identity.key, identity.cert)], identity.client_ca)
