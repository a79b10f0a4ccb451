"""The table of keys, continued: the sections that only a server reads."""

from dataclasses import dataclass
from datetime import timedelta

from imp_service.config.kinds import Boolean, Choice, Integer, ListOf, Real, Text
from imp_service.config.quantities import Duration, Size
from imp_service.config.table import key

PORT = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})"
ADDRESS = Text(
    "host:port, [IPv6]:port or unix:///path",
    pattern=rf"unix:///.+|(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):{PORT}",
)
PATH = Text("a path")


@dataclass(frozen=True, slots=True)
class Listen:
    grpc: tuple[str, ...] = key(
        ListOf(ADDRESS, 8), ("127.0.0.1:50051",), "where the services and health answer; port 0: any free one"
    )
    health: str | None = key(ADDRESS, None, "health alone, in plain text, for probes", example="[::]:50052")
    admin: str | None = key(ADDRESS, None, "AdminService and channelz; loopback or a socket", example="127.0.0.1:50053")
    metrics: str | None = key(ADDRESS, None, "Prometheus text over HTTP", example="[::]:9090")
    reflection: bool = key(Boolean(), True, "tell generic clients what services and methods there are")


@dataclass(frozen=True, slots=True)
class Tls:
    cert: str | None = key(PATH, None, "certificate chain (PEM) of the TCP listeners of listen.grpc", example="tls.crt")
    client_ca: str | None = key(PATH, None, "clients must have a certificate of these (PEM)", example="ca.crt")
    # Last: from here on, `key` is this field.
    key: str | None = key(PATH, None, "its private key (PEM)", example="tls.key")


@dataclass(frozen=True, slots=True)
class Auth:
    token_file: str | None = key(
        PATH, None, "bearer tokens: a line each, `sha256-hex roles tenants`; reloaded on change", example="tokens"
    )
    public_health: bool = key(Boolean(), True, "health answers without a token")


@dataclass(frozen=True, slots=True)
class Features:
    logits: bool = key(Boolean(), True, "steps may return the logits of the whole vocabulary", reloads=True)
    prompt_logprobs: bool = key(Boolean(), True, "requests may ask for the scores of their prompt", reloads=True)
    profile: bool = key(Boolean(), True, "AdminService.Profile records steps", reloads=True)


@dataclass(frozen=True, slots=True)
class Keepalive:
    time: timedelta = key(Duration("1s", "24h"), timedelta(seconds=20), "a silent connection is pinged after this")
    timeout: timedelta = key(Duration("1s", "1h"), timedelta(seconds=10), "and closed without an answer within this")
    min_ping_interval: timedelta = key(
        Duration("10ms", "1h"), timedelta(seconds=10), "clients that ping more often are told to go away"
    )


@dataclass(frozen=True, slots=True)
class Connection:
    max_age: timedelta | None = key(
        Duration("1s", "720h"), None, "ends connections, so that load spreads", example="30m"
    )
    max_age_grace: timedelta = key(
        Duration("1s", "24h"),
        timedelta(hours=1),
        "time for the calls of an aged one; not below limits.request_time",
    )
    max_connections: int = key(Integer(1, 65536), 512, "connections of a listener; beyond: closed at once")
    max_streams: int = key(Integer(1, 65536), 512, "calls at once on one connection; beyond: they wait in the client")
    compression: str = key(Choice("none", "gzip"), "none", "of replies, where the client accepts it")


@dataclass(frozen=True, slots=True)
class Chunk:
    max_tokens: int = key(Integer(1, 1024), 64, "most tokens of one message", reloads=True)
    max_delay: timedelta = key(
        Duration("0ms", "10s"),
        timedelta(0),
        "longest time a token waits for company; 0ms: only while the reader is busy",
        reloads=True,
    )


@dataclass(frozen=True, slots=True)
class SlowClient:
    bytes: int = key(Size(1024, 64 * 1024**2), 64 * 1024, "unread output of a stream; beyond, its sequences pause")
    timeout: timedelta = key(
        Duration("10ms", "24h"), timedelta(seconds=30), "paused for this long: SLOW_CLIENT", reloads=True
    )


@dataclass(frozen=True, slots=True)
class Drain:
    delay: timedelta = key(
        Duration("0ms", "1h"), timedelta(0), "not ready, but taking calls, so that routes can change", reloads=True
    )
    grace: timedelta = key(
        Duration("0ms", "24h"), timedelta(seconds=30), "then, time for what runs to end", reloads=True
    )


@dataclass(frozen=True, slots=True)
class Watchdog:
    request_stall: timedelta = key(
        Duration("10ms", "1h"), timedelta(seconds=5), "a running request without progress", reloads=True
    )
    engine_stall: timedelta = key(
        Duration("10ms", "1h"), timedelta(seconds=10), "an engine without a step: not alive", reloads=True
    )


@dataclass(frozen=True, slots=True)
class Log:
    format: str | None = key(Choice("text", "json"), None, "unset: text on a terminal, else json", example="json")
    level: str = key(Choice("debug", "info", "warning", "error"), "info", "least level that is written", reloads=True)
    max_lines_per_second: int = key(Integer(1, 10**6), 20, "of warnings of one kind; the rest is counted", reloads=True)


@dataclass(frozen=True, slots=True)
class Tracing:
    endpoint: str | None = key(
        Text("an OTLP address"),
        None,
        "exports OpenTelemetry spans there (extra: otel)",
        example="http://127.0.0.1:4317",
    )
    sample: float = key(Real(0.0, 1.0), 1.0, "share of requests without a caller's trace that are traced")
