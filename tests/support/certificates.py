"""Certificates of a test's own: an authority, and what it signs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, as PEM."""

    cert: bytes
    key: bytes


class Authority:
    """Signs certificates that are good for 127.0.0.1 from an hour ago to an hour from now."""

    def __init__(self, name: str = "test authority") -> None:
        self._name = _named(name)
        self._key = ec.generate_private_key(ec.SECP256R1())
        self.cert = self._sign(self._name, self._key, is_authority=True).cert

    def issue(self, name: str) -> Pair:
        """A certificate of `name`, for a server or a client."""
        return self._sign(_named(name), ec.generate_private_key(ec.SECP256R1()), is_authority=False)

    def _sign(self, subject: x509.Name, key: ec.EllipticCurvePrivateKey, *, is_authority: bool) -> Pair:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(hours=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        )
        cert = builder.sign(self._key, hashes.SHA256()).public_bytes(Encoding.PEM)
        return Pair(cert, key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
