"""Tokens, which decide who may call, and the server's certificates. Both come from files that may change."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from imp_service.serving.host import Host
from imp_service.serving.security.authentication import Authentication
from imp_service.serving.security.identity_files import Identity, IdentityFiles
from imp_service.serving.security.reloaded_files import FileWatcher, ReloadedFiles
from imp_service.serving.security.tokens import Tokens, is_readable_by_all, read_tokens


class Access:
    """One for a process; every listener uses it."""

    def __init__(self, host: Host) -> None:
        """Reads the files. Raises ConfigError."""
        self._host = host
        self._checks: list[Callable[[], None]] = []
        self._watcher: FileWatcher | None = None
        self._tokens = self._read_tokens()
        self.authentication = Authentication(self._tokens, public_health=host.settings.auth.public_health)
        # None without TLS.
        self.identity = self._read_identity()

    @property
    def requires_tokens(self) -> bool:
        """Callers need a token."""
        return self._tokens is not None

    def watch(self) -> None:
        """Until stop(), reads the files again when they change."""
        if self._checks:
            self._watcher = FileWatcher(self._checks)

    def stop(self) -> None:
        """Ends watch()."""
        if self._watcher is not None:
            self._watcher.stop()

    def _read_tokens(self) -> ReloadedFiles[Tokens] | None:
        if (text := self._host.settings.auth.token_file) is None:
            return None
        path, log = Path(text), self._host.telemetry.log
        tokens = ReloadedFiles("auth.token_file", (path,), lambda: read_tokens(path), log)
        if is_readable_by_all(path):
            log.warning("auth.token_file", message=f"{path}: everyone on this machine may read it")
        self._checks.append(tokens.check_files)
        self._host.reload.watch(tokens)
        return tokens

    def _read_identity(self) -> ReloadedFiles[Identity] | None:
        settings = self._host.settings.tls
        if settings.cert is None or settings.key is None:  # the settings have both or neither
            return None
        client_ca = None if settings.client_ca is None else Path(settings.client_ca)
        files = IdentityFiles(Path(settings.cert), Path(settings.key), client_ca)
        identity = ReloadedFiles("tls", files.paths, files.read, self._host.telemetry.log)
        self._checks.append(identity.check_files)
        self._host.reload.watch(identity)
        return identity
