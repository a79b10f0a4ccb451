"""The files of TLS: certificate, key, and the authority that signs client certificates."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.errors import ConfigError
from imp_service.config.server_settings import TlsSettings
from imp_service.serving.security.reloaded_files import ReloadedFiles, signature
from imp_service.telemetry.log import Log

# Files may be replaced between two reads. Then all are read again.
ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Identity:
    """The contents of the files, as PEM."""

    cert: bytes
    key: bytes
    client_ca: bytes | None


@dataclass(frozen=True, slots=True)
class IdentityFiles:
    """The paths of the files."""

    cert: Path
    key: Path
    client_ca: Path | None

    @property
    def paths(self) -> tuple[Path, ...]:
        """All files that are set."""
        return (self.cert, self.key) if self.client_ca is None else (self.cert, self.key, self.client_ca)

    def read(self) -> Identity:
        """Raises ConfigError if a handshake with these files could not succeed."""
        for _ in range(ATTEMPTS):
            before = signature(self.paths)
            self._check()
            client_ca = None if self.client_ca is None else _content("tls.client_ca", self.client_ca)
            found = Identity(_content("tls.cert", self.cert), _content("tls.key", self.key), client_ca)
            if signature(self.paths) == before:
                return found
        raise ConfigError("tls.cert", "the files change faster than they can be read")

    def _check(self) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        if self.client_ca is not None:
            read_authorities("tls.client_ca", self.client_ca)
        with _blaming("tls.cert", self.cert, "no certificate in PEM"):
            # A store of authorities accepts any certificate. Whether it fits the key is checked next.
            ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(self.cert)
        with _blaming("tls.key", self.key, f"no private key in PEM, without a password, that fits {self.cert}"):
            context.load_cert_chain(self.cert, self.key, password=lambda: b"")


def read_identity(settings: TlsSettings, log: Log) -> ReloadedFiles[Identity] | None:
    """The identity that the settings name; None without TLS. Raises ConfigError."""
    if settings.cert is None or settings.key is None:  # the settings have both or neither
        return None
    client_ca = None if settings.client_ca is None else Path(settings.client_ca)
    files = IdentityFiles(Path(settings.cert), Path(settings.key), client_ca)
    return ReloadedFiles("tls", files.paths, files.read, log)


def read_authorities(key: str, path: Path) -> bytes:
    """The certificates of authorities in a file, as PEM. Raises ConfigError, which blames the key."""
    with _blaming(key, path, "no certificate in PEM"):
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(path)
        return path.read_bytes()


def _content(key: str, path: Path) -> bytes:
    with _blaming(key, path, ""):
        return path.read_bytes()


@contextmanager
def _blaming(key: str, path: Path, expected: str) -> Iterator[None]:
    try:
        yield
    except ssl.SSLError:
        raise ConfigError(key, f"{path}: found {expected}" if expected.startswith("no ") else str(path)) from None
    except PermissionError:
        raise ConfigError(key, f"{path}: may not be read", reason="CONFIG_PERMISSION") from None
    except OSError as error:
        raise ConfigError(key, f"{path}: {error.strerror or 'cannot be read'}") from None
