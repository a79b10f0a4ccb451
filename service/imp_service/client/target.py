"""A server and how to call it: address, TLS, token, retries; and the channel for it."""

import json
import ssl
from dataclasses import dataclass
from pathlib import Path

import grpc

from .read_address import DEFAULT_ADDRESS

# gRPC makes at most five attempts.
MOST_ATTEMPTS = 5
# A client that waits for a restarting server notices soon that it is back.
FIRST_BACKOFF_MS, MOST_BACKOFF_MS = 100, 3000
# A peer that is gone without a word is noticed within their sum. Servers that allow fewer pings end the connection.
KEEPALIVE_MS, KEEPALIVE_TIMEOUT_MS = 20_000, 10_000
# The most that `limits.max_message_bytes` can allow a server to send.
MOST_RECEIVED_BYTES = 1024**3
# Says that the caller can go on elsewhere: a server that drains need not wait for its streams.
RESUMES: tuple[tuple[str, str], ...] = (("imp-resumes", "1"),)
# Asks a server to say at once that it has the call, and how it does so.
ACKNOWLEDGE: tuple[tuple[str, str], ...] = (("imp-acknowledge", "1"),)
SERVER_KEY = "imp-instance-id"
SERVICE = "imp.v1.InferenceService"
# Their calls are made again by those who make them.
RESUMED_METHODS = ("Generate", "Prefill", "DecodeStep", "ForkSession", "TruncateSession")


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
    # Streams that break go on in another call.
    resumes: bool = False

    @property
    def has_several(self) -> bool:
        """Whether the address may stand for several servers, which go on with each other's streams."""
        is_list = self.address.startswith(("ipv4:", "ipv6:")) and "," in self.address
        return self.resumes and (is_list or self.address.startswith("dns:///"))

    @property
    def call_metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of every call."""
        bearer = () if self.token is None else (("authorization", f"Bearer {self.token}"),)
        return (*self.metadata, *bearer)

    def channel_options(self, *, is_spread: bool = False) -> tuple[tuple[str, object], ...]:
        """For a channel that stays with one server, or that spreads its calls over all of the address."""
        options: tuple[tuple[str, object], ...] = (
            ("grpc.max_receive_message_length", MOST_RECEIVED_BYTES),
            ("grpc.initial_reconnect_backoff_ms", FIRST_BACKOFF_MS),
            ("grpc.max_reconnect_backoff_ms", MOST_BACKOFF_MS),
            ("grpc.keepalive_time_ms", KEEPALIVE_MS),
            ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            # Without these gRPC stops to ping a stream on which nothing comes, and waits a minute for each answer.
            ("grpc.http2.max_pings_without_data", 0),
            ("grpc.http2.ping_timeout_ms", KEEPALIVE_TIMEOUT_MS),
            ("grpc.enable_retries", int(self.attempts > 1)),
        )
        config = service_config(self.attempts, resumes=self.resumes, has_several=self.has_several, is_spread=is_spread)
        return (*options, ("grpc.service_config", json.dumps(config)))


def service_config(
    attempts: int, *, resumes: bool = False, has_several: bool = False, is_spread: bool = False
) -> dict[str, object]:
    """gRPC's retry policy, and how it chooses among several servers.

    gRPC retries before the first reply only, and obeys the server's pushback. UNAVAILABLE (loading, draining, not
    reachable) and RESOURCE_EXHAUSTED (queue, cache or share is full) are the codes after which the same call may
    succeed. A stream or a session that resumes counts its calls itself, so gRPC does not repeat them.
    """
    policy = {
        "maxAttempts": attempts,
        "initialBackoff": "0.2s",
        "maxBackoff": "3s",
        "backoffMultiplier": 2,
        "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
    }
    methods: list[dict[str, object]] = [{"name": [{}], "retryPolicy": policy}] if attempts > 1 else []
    if resumes:
        methods.append({"name": [{"service": SERVICE, "method": method} for method in RESUMED_METHODS]})
    config: dict[str, object] = {"methodConfig": methods}
    if has_several and is_spread:
        # A server that loads or drains is left out.
        config |= {"loadBalancingConfig": [{"round_robin": {}}], "healthCheckConfig": {"serviceName": SERVICE}}
    elif has_several:
        config["loadBalancingConfig"] = [{"pick_first": {"shuffleAddressList": True}}]
    return config


def open_channel(target: Target, *, is_spread: bool = False, own_connection: bool = False) -> grpc.Channel:
    """With `is_spread`, its calls go to all servers of the address in turn; else to one.

    With `own_connection` it does not share connections with other channels: it may choose another server than they.
    """
    options = (*target.channel_options(is_spread=is_spread), ("grpc.use_local_subchannel_pool", int(own_connection)))
    if target.tls is None:
        return grpc.insecure_channel(target.address, options=options)
    return grpc.secure_channel(target.address, target.tls.credentials(), options=options)


def open_async_channel(target: Target, *, is_spread: bool = False, own_connection: bool = False) -> grpc.aio.Channel:
    """A channel on the running event loop. With `own_connection` it does not share connections with other channels."""
    options = (*target.channel_options(is_spread=is_spread), ("grpc.use_local_subchannel_pool", int(own_connection)))
    if target.tls is None:
        return grpc.aio.insecure_channel(target.address, options=options)
    return grpc.aio.secure_channel(target.address, target.tls.credentials(), options=options)
