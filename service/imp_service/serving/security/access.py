"""Tokens, which decide who may call, and the server's certificates. Both come from files that may change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from imp_service.serving.security.authentication import Authentication
from imp_service.serving.security.identity_files import Identity, read_identity
from imp_service.serving.security.reloaded_files import FileWatcher, ReloadedFiles
from imp_service.serving.security.tokens import Token, TokenFile, is_readable_by_all, read_keys, read_tokens
from imp_service.serving.server_state import ServerState


class Access:
    """One for a process; every listener uses it."""

    def __init__(self, state: ServerState, keys: Sequence[Token] = ()) -> None:
        """Reads the files. `keys` are further tokens, which do not change. Raises ConfigError."""
        self._state = state
        self._checks: list[Callable[[], None]] = []
        self._watcher: FileWatcher | None = None
        self._typed = TokenFile(keys)
        auth = state.settings.auth
        self._files = [
            self._read(f"auth.{name}", Path(text), read)
            for name, text, read in (
                ("token_file", auth.token_file, read_tokens),
                ("api_key_file", auth.api_key_file, read_keys),
            )
            if text is not None
        ]
        self.requires_tokens = bool(keys or self._files)
        self.authentication = Authentication(
            self._find if self.requires_tokens else None, public_health=auth.public_health
        )
        # None without TLS.
        self.identity = self._read_identity()

    def watch(self) -> None:
        """Until stop(), reads the files again when they change."""
        if self._checks:
            self._watcher = FileWatcher(self._checks)

    def stop(self) -> None:
        """Ends watch()."""
        if self._watcher is not None:
            self._watcher.stop()

    def _find(self, word: str) -> Token | None:
        """The token that a caller sent. Every source is searched, so that the time does not tell which has it."""
        found = None
        for tokens in (self._typed, *(file.value for file in self._files)):
            found = tokens.find(word) or found
        return found

    def _read(self, setting: str, path: Path, read: Callable[[Path], TokenFile]) -> ReloadedFiles[TokenFile]:
        log = self._state.telemetry.log
        tokens = ReloadedFiles(setting, (path,), lambda: read(path), log)
        if is_readable_by_all(path):
            log.warning(setting, message=f"{path}: everyone on this machine may read it")
        self._checks.append(tokens.check_files)
        self._state.reload.watch(tokens)
        return tokens

    def _read_identity(self) -> ReloadedFiles[Identity] | None:
        identity = read_identity(self._state.settings.tls, self._state.telemetry.log)
        if identity is not None:
            self._checks.append(identity.check_files)
            self._state.reload.watch(identity)
        return identity
