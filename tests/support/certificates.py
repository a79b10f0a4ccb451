"""Certificates for tests: an authority, and certificates that it signs."""

from __future__ import annotations

import datetime
import ipaddress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

LONG_AGO, LONG_AHEAD = datetime.datetime(2020, 1, 1), datetime.datetime(2099, 1, 1)
PEM = serialization.Encoding.PEM


@dataclass(frozen=True)
class Certificate:
    """A certificate with its private key."""

    certificate: x509.Certificate
    private_key: Any

    @property
    def cert(self) -> bytes:
        """Returns the certificate as PEM."""
        return self.certificate.public_bytes(PEM)

    @property
    def key(self) -> bytes:
        """Returns the key as PEM, without a password."""
        return bytes(
            self.private_key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
        )

    def write(self, folder: Path) -> tuple[Path, Path]:
        """Writes cert.pem and key.pem, and returns their paths."""
        paths = folder / "cert.pem", folder / "key.pem"
        for path, content in zip(paths, (self.cert, self.key), strict=True):
            path.write_bytes(content)
        return paths


def make_certificate(
    name: str, authority: Certificate | None = None, *, host: str = "localhost", until: datetime.datetime = LONG_AHEAD
) -> Certificate:
    """Makes a certificate that `authority` signs. Without one, makes an authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    names: list[x509.GeneralName] = [x509.DNSName(host)]
    if host == "localhost":
        names.append(x509.IPAddress(ipaddress.ip_address("127.0.0.1")))
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(authority.certificate.subject if authority else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(LONG_AGO)
        .not_valid_after(until)
        .add_extension(x509.BasicConstraints(authority is None, None), critical=True)
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .sign(authority.private_key if authority else key, hashes.SHA256())
    )
    return Certificate(certificate, key)
