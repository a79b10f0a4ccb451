"""Finds the errors in files of tokens and certificates that would prevent the start of a server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from imp_service.config import Config, ConfigError
from imp_service.config.toml import KeyPath
from imp_service.core.settings_faults import file_faults

_CERTIFICATE: tuple[KeyPath, ...] = (("tls", "cert"), ("tls", "key"), ("tls", "client_ca"))
_TOKENS: tuple[KeyPath, ...] = (("auth", "token_file"),)
_KEYS: tuple[KeyPath, ...] = (("auth", "api_key_file"),)


def secret_faults(config: Config) -> Iterator[ConfigError]:
    """Reads the files as a server does. Files that are not regular, such as pipes, are not read."""
    tls, token_file = config.settings.tls, config.settings.auth.token_file
    key_file = config.settings.auth.api_key_file

    def read_identity() -> None:
        from imp_service.serving.security.identity_files import IdentityFiles

        client_ca = None if tls.client_ca is None else Path(tls.client_ca)
        if tls.cert is not None and tls.key is not None:  # one alone the settings refuse
            IdentityFiles(Path(tls.cert), Path(tls.key), client_ca).read()

    def read_token_file() -> None:
        from imp_service.serving.security.tokens import read_tokens

        read_tokens(Path(str(token_file)))

    def read_key_file() -> None:
        from imp_service.serving.security.tokens import read_keys

        read_keys(Path(str(key_file)))

    yield from _faults(config, _CERTIFICATE, (tls.cert, tls.key, tls.client_ca), read_identity)
    yield from _faults(config, _TOKENS, (token_file,), read_token_file)
    yield from _faults(config, _KEYS, (key_file,), read_key_file)


def _faults(
    config: Config, keys: tuple[KeyPath, ...], files: tuple[str | None, ...], read: Callable[[], None]
) -> Iterator[ConfigError]:
    """Each file that does not open. If all open, the first error in their contents."""
    unreadable = [fault for key in keys for fault in file_faults(config, key)]
    yield from unreadable
    named = [file for file in files if file is not None]
    if unreadable or not named or not all(Path(file).is_file() for file in named):
        return
    try:
        read()
    except ConfigError as error:
        yield error
