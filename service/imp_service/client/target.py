"""Where a server is and what it wants of a caller: address, TLS, token; and the channel options that follow."""

import json
from dataclasses import dataclass
from pathlib import Path

import grpc

DEFAULT_ADDRESS = "127.0.0.1:50051"
# gRPC itself makes no more than five attempts, whatever is asked for.
MOST_ATTEMPTS = 5


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files. Without `ca`, gRPC's own roots decide; `cert` and `key` are the caller's, for mutual TLS."""

    ca: str | None = None
    cert: str | None = None
    key: str | None = None

    def credentials(self) -> grpc.ChannelCredentials:
        """Reads the files; OSError where one cannot be."""
        ca, key, cert = (None if path is None else Path(path).read_bytes() for path in (self.ca, self.key, self.cert))
        return grpc.ssl_channel_credentials(ca, key, cert)


@dataclass(frozen=True, slots=True)
class Target:
    """A server. `address` is any gRPC name: host:port, unix:///path, dns:///host:port."""

    address: str = DEFAULT_ADDRESS
    tls: TlsFiles | None = None
    token: str | None = None
    metadata: tuple[tuple[str, str], ...] = ()
    attempts: int = MOST_ATTEMPTS

    @property
    def call_metadata(self) -> tuple[tuple[str, str], ...]:
        """What every call carries."""
        bearer = () if self.token is None else (("authorization", f"Bearer {self.token}"),)
        return (*self.metadata, *bearer)

    @property
    def channel_options(self) -> tuple[tuple[str, object], ...]:
        # The server bounds what it sends (scores of a long prompt, a tokenizer); the caller asked for all of it.
        options: tuple[tuple[str, object], ...] = (("grpc.max_receive_message_length", -1),)
        if self.attempts == 1:
            return (*options, ("grpc.enable_retries", 0))
        return (*options, ("grpc.service_config", json.dumps(service_config(self.attempts))))


def service_config(attempts: int) -> dict[str, object]:
    """Retries by gRPC itself: only while nothing of a reply has come, and when the server's pushback says so.

    UNAVAILABLE (loading, draining, not there yet) and RESOURCE_EXHAUSTED (queue, cache or share is full) are the
    codes of the error table that the identical call may survive.
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
    """On the running event loop. With `own_connection` it shares none with other channels to the same address."""
    options = (*target.channel_options, ("grpc.use_local_subchannel_pool", int(own_connection)))
    if target.tls is None:
        return grpc.aio.insecure_channel(target.address, options=options)
    return grpc.aio.secure_channel(target.address, target.tls.credentials(), options=options)
