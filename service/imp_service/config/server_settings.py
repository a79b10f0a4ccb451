"""The sections of the table of keys that only a server reads."""

from dataclasses import dataclass
from datetime import timedelta

from imp_service.config.kinds import Boolean, Enumeration, Integer, ListOf, Real, String
from imp_service.config.quantities import Duration, Size
from imp_service.config.table import key

PORT = "(?:6553[0-5]|655[0-2][0-9]|65[0-4][0-9]{2}|6[0-4][0-9]{3}|[1-5][0-9]{4}|[0-9]{1,4})"
_TCP = rf"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):{PORT}"
_ADDRESS = rf"unix:///.+|(?!fd:){_TCP}"
ADDRESS = String(
    "host:port such as 127.0.0.1:8000, [IPv6]:port or unix:///path, with a port of at most 65535", pattern=_ADDRESS
)
HTTP_ADDRESS = String(f"{ADDRESS.what}, or fd:N of a listening socket", pattern=rf"fd:[0-9]{{1,5}}|{_ADDRESS}")
# Of a server behind a front.
SERVER_ADDRESS = String(f"{ADDRESS.what}, or https://host:port", pattern=rf"{_ADDRESS}|https://{_TCP}")
PATH = String("a path")
ORIGIN = String("an origin such as https://chat.example.com, or *", pattern=r"\*|https?://[^/\s]+")
HOST = String("a host name without port", pattern=r"[a-z0-9.-]{1,253}")


@dataclass(frozen=True, slots=True)
class ListenSettings:
    grpc: tuple[str, ...] = key(
        ListOf(ADDRESS, 8), ("127.0.0.1:50051",), "addresses of the services and of health; port 0: any free port"
    )
    http: tuple[str, ...] = key(
        ListOf(HTTP_ADDRESS, 8),
        ("127.0.0.1:8000",),
        "addresses of OpenAI's API, or fd:N of a listening socket; unset: none if only others of [listen] are set",
    )
    health: str | None = key(ADDRESS, None, "health only, without TLS, for probes", example="[::]:50052")
    admin: str | None = key(
        ADDRESS, None, "AdminService and channelz; loopback or Unix socket", example="127.0.0.1:50053"
    )
    metrics: str | None = key(ADDRESS, None, "/metrics alone, over HTTP without TLS and tokens", example="[::]:9090")
    reflection: bool = key(Boolean(), True, "let generic clients list services and methods")
    compat: tuple[str, ...] = key(
        ListOf(Enumeration("vllm"), 1), (), "protocols of other servers on listen.grpc, for gateways (extra: smg)"
    )


@dataclass(frozen=True, slots=True)
class HttpSettings:
    origins: tuple[str, ...] = key(
        ListOf(ORIGIN, 64), (), 'origins whose pages may call, besides the server\'s own and loopback; "*": all'
    )
    hosts: tuple[str, ...] = key(
        ListOf(HOST, 64),
        (),
        "host names of this server, besides addresses, single words, .svc, .cluster.local and .internal",
    )
    playground: bool = key(Boolean(), True, "serve a page to try the model at /")
    unknown_fields: str = key(
        Enumeration("refuse", "ignore"), "refuse", "request fields that imp does not know", reloads=True
    )
    public_metrics: bool = key(Boolean(), False, "/metrics needs no token")
    head_timeout: timedelta = key(
        Duration("10ms", "1h"),
        timedelta(seconds=10),
        "longest wait for a request's head, and for each next part of its body",
    )
    body_timeout: timedelta = key(
        Duration("10ms", "1h"), timedelta(seconds=60), "longest time for a whole body, of a request or of an answer"
    )
    idle_timeout: timedelta = key(
        Duration("10ms", "24h"), timedelta(seconds=75), "close an unused connection after this"
    )
    heartbeat: timedelta = key(
        Duration("10ms", "1h"), timedelta(seconds=10), "while a stream waits, send a comment this often"
    )


@dataclass(frozen=True, slots=True)
class FrontSettings:
    survive: bool = key(
        Boolean(), False, "imp serve runs its engine as a process of its own, and starts it again when it ends"
    )
    to: tuple[str, ...] = key(
        ListOf(SERVER_ADDRESS, 8),
        (),
        "imp front: addresses of servers over HTTP, or https://host:port; a name is all of its addresses",
    )
    ca: str | None = key(
        PATH, None, "authorities (PEM) of the certificates of https:// servers; unset: the system's", example="ca.crt"
    )
    hold: timedelta = key(
        Duration("0ms", "10m"), timedelta(seconds=10), "a call waits for a server that is ready this long"
    )
    memory: int = key(
        Size(1024**2, 64 * 1024**3),
        64 * 1024**2,
        "bodies that are kept to go on elsewhere; a stream beyond it is relayed, but not resumed",
    )


@dataclass(frozen=True, slots=True)
class TlsSettings:
    cert: str | None = key(
        PATH, None, "certificate chain (PEM) of the TCP listeners of listen.grpc and listen.http", example="tls.crt"
    )
    client_ca: str | None = key(PATH, None, "clients need a certificate signed by one of these (PEM)", example="ca.crt")
    # Last: from here on, `key` is this field.
    key: str | None = key(PATH, None, "private key of cert (PEM)", example="tls.key")


@dataclass(frozen=True, slots=True)
class AuthSettings:
    token_file: str | None = key(
        PATH, None, "bearer tokens: a line each, `sha256-hex roles tenants`; reloaded on change", example="tokens"
    )
    api_key_file: str | None = key(
        PATH,
        None,
        "keys as callers send them: a line each, with the roles data and read; reloaded on change",
        example="keys",
    )
    public_health: bool = key(Boolean(), True, "health checks need no token")


@dataclass(frozen=True, slots=True)
class FeaturesSettings:
    logits: bool = key(Boolean(), True, "steps may return logits of the whole vocabulary", reloads=True)
    prompt_logprobs: bool = key(Boolean(), True, "requests may ask for the scores of their prompt", reloads=True)
    profile: bool = key(Boolean(), True, "AdminService.Profile records steps", reloads=True)


@dataclass(frozen=True, slots=True)
class KeepaliveSettings:
    time: timedelta = key(Duration("1s", "24h"), timedelta(seconds=20), "ping an idle connection after this")
    timeout: timedelta = key(
        Duration("1s", "1h"), timedelta(seconds=10), "close it if the ping is not answered within this"
    )
    min_ping_interval: timedelta = key(
        Duration("10ms", "1h"), timedelta(seconds=10), "close connections of clients that ping more often"
    )


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    max_age: timedelta | None = key(
        Duration("1s", "720h"), None, "close connections at this age, so that load spreads", example="30m"
    )
    max_age_grace: timedelta = key(
        Duration("1s", "24h"),
        timedelta(hours=1),
        "time for calls on a closing connection; at least limits.request_time",
    )
    max_connections: int = key(Integer(1, 65536), 512, "connections of a listener; further ones are closed")
    max_streams: int = key(Integer(1, 65536), 512, "concurrent calls of a connection; further ones wait in the client")
    compression: str = key(Enumeration("none", "gzip"), "none", "compression of replies, if the client accepts it")


@dataclass(frozen=True, slots=True)
class ChunkSettings:
    max_tokens: int = key(Integer(1, 1024), 64, "most tokens of one message", reloads=True)
    max_delay: timedelta = key(
        Duration("0ms", "10s"),
        timedelta(0),
        "longest wait for more tokens; 0s: only while the reader is busy",
        reloads=True,
    )


@dataclass(frozen=True, slots=True)
class SlowClientSettings:
    bytes: int = key(Size(1024, 64 * 1024**2), 64 * 1024, "a stream's sequences pause at this much unread output")
    timeout: timedelta = key(
        Duration("10ms", "24h"), timedelta(seconds=30), "end a stream with SLOW_CLIENT after this pause", reloads=True
    )


@dataclass(frozen=True, slots=True)
class DrainSettings:
    delay: timedelta = key(
        Duration("0ms", "1h"),
        timedelta(0),
        "health is NOT_SERVING, but calls are accepted, so that routes can change",
        reloads=True,
    )
    grace: timedelta = key(
        Duration("0ms", "24h"), timedelta(seconds=30), "after the delay: time for running calls to end", reloads=True
    )


@dataclass(frozen=True, slots=True)
class WatchdogSettings:
    request_stall: timedelta = key(
        Duration("10ms", "1h"), timedelta(seconds=5), "end a running request without progress after this", reloads=True
    )
    engine_stall: timedelta = key(
        Duration("10ms", "1h"),
        timedelta(seconds=10),
        "liveness fails if a busy engine makes no step for this long",
        reloads=True,
    )


@dataclass(frozen=True, slots=True)
class LogSettings:
    format: str | None = key(Enumeration("text", "json"), None, "unset: text on a terminal, else json", example="json")
    level: str = key(
        Enumeration("debug", "info", "warning", "error"), "info", "lowest level that is written", reloads=True
    )
    max_lines_per_second: int = key(
        Integer(1, 10**6),
        20,
        "limit for each kind of warning, error or client's line; the rest is counted",
        reloads=True,
    )


@dataclass(frozen=True, slots=True)
class TracingSettings:
    endpoint: str | None = key(
        String("an OTLP address"),
        None,
        "export OpenTelemetry spans to this address (extra: otel)",
        example="http://127.0.0.1:4317",
    )
    sample: float = key(Real(0.0, 1.0), 1.0, "fraction traced of requests without a caller's trace")
