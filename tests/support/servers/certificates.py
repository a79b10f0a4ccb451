"""Certificates of this machine, which trustme makes, and the files in which a server reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import trustme


class Certificate:
    """A certificate and its private key as PEM."""

    def __init__(self, cert: trustme.Blob, key: trustme.Blob) -> None:
        self.cert, self.key = cert.bytes(), key.bytes()

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Writes cert.pem and key.pem, and returns their paths."""
        paths = folder / "cert.pem", folder / "key.pem"
        for path, content in zip(paths, (self.cert, self.key), strict=True):
            path.write_bytes(content)
        return paths


class Authority(Certificate):
    """An authority with its own certificate."""

    def __init__(self) -> None:
        self._authority = trustme.CA()
        super().__init__(self._authority.cert_pem, self._authority.private_key_pem)

    def issue(self, **how: Any) -> Certificate:
        """Returns a new certificate that this authority signs; `how` goes to trustme."""
        issued = self._authority.issue_cert("localhost", "127.0.0.1", **how)
        return Certificate(issued.cert_chain_pems[0], issued.private_key_pem)
