"""TLS of the data listeners. gRPC asks at each handshake whether the files have changed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc

from imp_service.config.server_settings import Tls as TlsSettings
from imp_service.serving.security.identity_files import Identity, IdentityFiles
from imp_service.serving.security.reloaded_files import ReloadedFiles
from imp_service.telemetry.log import Log


class TlsCredentials:
    """gRPC asks at each handshake whether there is something new; running connections keep what they have."""

    def __init__(self, settings: TlsSettings, log: Log) -> None:
        """Reads the files; raises ConfigError."""
        assert settings.cert is not None and settings.key is not None  # the settings have both or neither
        client_ca = None if settings.client_ca is None else Path(settings.client_ca)
        files = IdentityFiles(Path(settings.cert), Path(settings.key), client_ca)
        self.files = ReloadedFiles("tls", files.paths, files.read, log)
        self._given = self.files.value
        self.credentials = grpc.dynamic_ssl_server_credentials(
            _configuration(self._given), self._fetch, require_client_authentication=client_ca is not None
        )

    def _fetch(self) -> Any:
        """On a thread of gRPC's. None: nothing new."""
        current = self.files.value
        if current is self._given:
            return None
        self._given = current
        return _configuration(current)


def _configuration(identity: Identity) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration([(identity.key, identity.cert)], identity.client_ca)
