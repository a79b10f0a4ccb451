"""A server and how to call it: address, TLS, token, retries; and the channel for it."""

import json
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from .read_address import DEFAULT_ADDRESS

# gRPC makes at most five attempts.
MOST_ATTEMPTS = 5
MOST_BACKOFF_MS = 3000


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. Without `ca`, gRPC's own roots decide; `cert` and `key` are the caller's, for mutual TLS."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    @property
    def is_empty(self) -> bool:
        return self == TlsFiles()

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files. Raises OSError, or ValueError for a file that is not PEM."""
        ca, key, cert = (
            None if path is None else _read_pem(path, what)
            for path, what in ((self.ca, "CERTIFICATE"), (self.key, "PRIVATE KEY"), (self.cert, "CERTIFICATE"))
        )
        return grpc.ssl_channel_credentials(ca, key, cert)

    def ssl_context(self) -> ssl.SSLContext:
        """For HTTP. Without `ca`, the system's roots decide. Raises OSError for files that cannot be used."""
        context = ssl.create_default_context(cafile=self.ca)
        if self.cert is not None:
            context.load_cert_chain(self.cert, self.key)
        return context


def _read_pem(path: str, what: str) -> bytes:
    content = Path(path).read_bytes()
    if f"{what}-----".encode() not in content:
        raise ValueError(f"{path}: holds no {what.lower()}, expected one in PEM")
    return content


@dataclass(frozen=True, slots=True)
class Target:
    """A server. `address` is any gRPC name: host:port, unix:///path, dns:///host:port."""

    address: str = DEFAULT_ADDRESS
    tls: TlsFiles | None = None
    token: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    attempts: int = MOST_ATTEMPTS
    # Its options are those of the command line, not keywords of connect(): messages name them.
    is_typed: bool = True

    @property
    def call_metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call."""
        bearer = () if self.token is None else (("authorization", f"Bearer {self.token}"),)
        return (*self.metadata, *bearer)

    @property
    def channel_options(self) -> tuple[tuple[str, object], ...]:
        # The server limits what it sends; the client accepts all of it.
        options: tuple[tuple[str, object], ...] = (
            ("grpc.max_receive_message_length", -1),
            # A client that waits for a restarting server notices within seconds that it is back.
            ("grpc.max_reconnect_backoff_ms", MOST_BACKOFF_MS),
        )
        if self.attempts == 1:
            return (*options, ("grpc.enable_retries", 0))
        return (*options, ("grpc.service_config", json.dumps(service_config(self.attempts))))


def service_config(attempts: int) -> dict[str, object]:
    """gRPC's retry policy. gRPC retries before the first reply only, and obeys the server's pushback.

    UNAVAILABLE (loading, draining, not reachable) and RESOURCE_EXHAUSTED (queue, cache or share is full) are the codes
    after which the same call may succeed.
    """
    policy = {
        "maxAttempts": attempts,
        "initialBackoff": "0.2s",
        "maxBackoff": "3s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    }
    return {"methodConfig": [{"name": [{}], "retryPolicy": policy}]}


def open_channel(target: Target) -> grpc.Channel:
    if target.tls is None:
        return grpc.insecure_channel(target.address, options=target.channel_options)
    return grpc.secure_channel(target.address, target.tls.credentials(), options=target.channel_options)


def open_async_channel(target: Target, *, own_connection: bool = False) -> grpc.aio.Channel:
    """A channel on the running event loop. With `own_connection` it does not share connections with other channels."""
    options = (*target.channel_options, ("grpc.use_local_subchannel_pool", int(own_connection)))
    if target.tls is None:
        return grpc.aio.insecure_channel(target.address, options=options)
    return grpc.aio.secure_channel(target.address, target.tls.credentials(), options=options)
