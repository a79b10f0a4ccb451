"""Keys whose effect shows on a running server: where it listens, who may call, what it refuses, when it gives up."""

from __future__ import annotations

import itertools
import math
import urllib.request
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from imp_service.config import ConfigError
from imp_service.pb import admin_pb2, types_pb2
from imp_service.pb import inference_pb2 as pb
from imp_service.serving import generation_runner
from imp_service.serving.generation_stream import OutboxLimits
from imp_service.serving.lifecycle import Phase
from imp_service.serving.server_state import ServerState
from imp_service.telemetry import tracing
from imp_service.telemetry.log import Log
from support.calls.raw_calls import ADMIN, HEALTH, REFLECTION, call
from support.calls.session_calls import SessionCalls, seconds
from support.calls.status_details import read_details
from support.key_effects.effect import Effect, Observe
from support.key_effects.running import Running
from support.servers.certificates import Authority
from support.servers.served import Served, ask, serve, tokens_of
from support.servers.vector_served import POOLED

GET_INFO = "/imp.v1.ModelService/GetServerInfo"
CHECK = f"/{HEALTH}/Check"


def on_server(look: Callable[[Served], Any]) -> Observe:
    """Observes a running server."""

    def unchecked(served: Served) -> Any:
        served.is_checked = False
        return look(served)

    return Running(serve, lambda served: served, unchecked)


def code_of(method: str, address: Callable[[Served], str | None] = lambda served: served.address) -> Observe:
    """Observes the status of a call without a token; "nowhere" if nothing listens."""

    def look(served: Served) -> str:
        target = address(served)
        if target is None:
            return "nowhere"
        with grpc.insecure_channel(target) as channel:
            return call(channel, method).code

    return on_server(look)


def scraped(served: Served) -> int | str:
    """Returns the HTTP status of a scrape; "nowhere" if nothing listens."""
    if served.http.metrics_address is None:
        return "nowhere"
    with urllib.request.urlopen(f"http://{served.http.metrics_address}/metrics") as reply:
        return int(reply.status)


def handshakes(folder: Path, settings: tuple[str, ...]) -> tuple[bool, ...] | str:
    """Returns whether a server answers in plain text, over TLS, and over TLS to a client without a certificate.

    If the server does not start, returns the name of the failure.
    """
    authority = Authority()
    authority.issue().write(folder)
    (folder / "ca.pem").write_bytes(authority.cert)
    client = authority.issue()
    known = grpc.ssl_channel_credentials(authority.cert, client.key, client.cert)
    unknown = grpc.ssl_channel_credentials(authority.cert)
    alone = (("grpc.use_local_subchannel_pool", 1),)
    try:
        # The server's own checks call it in the way that works.
        with serve(*settings, credentials=known if settings else None) as served:
            channels = [grpc.insecure_channel(served.address, alone)]
            channels += [grpc.secure_channel(served.address, each, alone) for each in (known, unknown)]
            answers = tuple(call(channel, CHECK).code == "OK" for channel in channels)
            for channel in channels:
                channel.close()
            return answers
    except ConfigError as error:
        return error.reason


def token_file(folder: Path) -> None:
    """Writes a token file whose token nobody has."""
    path = folder / "tokens"
    path.write_text(f"{'0' * 64} data,read *\n")
    path.chmod(0o600)


def with_tokens(observe: Observe) -> Observe:
    """Observes with a token file in the folder."""

    def observe_with(folder: Path, settings: tuple[str, ...]) -> Any:
        token_file(folder)
        return observe(folder, settings)

    return observe_with


def with_keys(observe: Observe) -> Observe:
    """Observes with a file of one key in the folder, which nobody sends."""

    def observe_with(folder: Path, settings: tuple[str, ...]) -> Any:
        (folder / "keys").write_text("sk-nobody\n")
        return observe(folder, settings)

    return observe_with


def status_of(request: Callable[[Served], object]) -> Observe:
    """Observes the reason for which a call is refused, or OK."""

    def look(served: Served) -> str:
        try:
            request(served)
        except grpc.RpcError as error:
            return read_details(error.trailing_metadata() or ()).reason
        return "OK"

    return on_server(look)


def generated(request: pb.GenerateRequest) -> Callable[[Served], object]:
    """Returns a call that reads the request's whole stream."""
    return lambda served: list(served.inference.Generate(request))


def embedded(served: Served) -> object:
    """Embeds two texts."""
    return served.inference.Embed(pb.EmbedRequest(texts=["a", "b"]))


def n_output(served: Served) -> int:
    """Returns the number of tokens of a generation without a limit of its own."""
    request = ask([300], None, stop=types_pb2.StopOptions(ignore_eos=True))
    return len(tokens_of(list(served.inference.Generate(request))))


def n_sessions(tenants: Sequence[str]) -> Callable[[Served], int]:
    """Returns a look at how many sessions these tenants can open in turn; at most 40."""

    def look(served: Served) -> int:
        callers = [SessionCalls(served, tenant) for tenant in tenants]
        for n, caller in zip(range(40), itertools.cycle(callers), strict=False):
            try:
                caller.prefill([300])
            except grpc.RpcError:
                return n
        return 40

    return look


def first_jump(served: Served, jumps: Sequence[float], holds: Callable[[], bool]) -> float:
    """Sets the clock forward by these seconds in turn; returns the sum after which `holds` is true."""
    passed = 0.0
    for jump in jumps:
        served.jump(jump)
        passed += jump
        if served.call(holds):
            return passed
    return math.inf


def session_ends(served: Served) -> float:
    """Returns the seconds after which an unused session is gone."""
    with served.frozen():
        SessionCalls(served).prefill([300])
        return first_jump(served, (59, 1, 39, 1), lambda: len(served.state.sessions) == 0)


def drain_begins(served: Served) -> float:
    """Returns the seconds after which a draining server takes no more work."""
    with served.frozen():
        served.call(served.state.drain.begin)
        return first_jump(served, (0, 9, 1), lambda: served.state.lifecycle.phase is Phase.DRAINING)


def drain_cuts(served: Served) -> float:
    """Returns the seconds after which a draining server ends running work."""
    cut: list[bool] = []

    async def never() -> None:
        await served.thread.loop.create_future()

    async def note(*_: object, **__: object) -> None:
        cut.append(True)

    with served.frozen(), mock.patch.multiple(served.state.calls, wait_until_idle=never, end_requests=note):
        served.call(served.state.drain.begin)
        return first_jump(served, (0, 4, 1, 34, 1), lambda: bool(cut))


def stream_argument(read: Callable[[OutboxLimits, float], Any]) -> Observe:
    """Observes the bounds of a stream whose generation sets none."""

    def look(served: Served) -> Any:
        seen: list[Any] = []
        real = generation_runner.GenerationStream

        def note(client: Any, plan: Any, limits: OutboxLimits, *rest: Any, time_limit: float, **more: Any) -> Any:
            seen.append(read(limits, time_limit))
            return real(client, plan, limits, *rest, time_limit=time_limit, **more)

        with mock.patch.object(generation_runner, "GenerationStream", note):
            list(served.inference.Generate(ask([300], 2)))
        return seen[0]

    return on_server(look)


def state_value(read: Callable[[ServerState], Any]) -> Observe:
    """Observes a value in the server's state."""
    return on_server(lambda served: served.call(lambda: read(served.state)))


def log_lines(write: Callable[[Log], object]) -> Callable[[Served], list[str]]:
    """Returns a look at the lines of the event "made" that `write` logs. A busy server may log others beside them."""

    def look(served: Served) -> list[str]:
        begin = served.log_bytes
        write(served.state.telemetry.log)
        served.state.telemetry.log.error("end")
        served.wait_until(lambda: any("end" in line for line in served.log_lines(begin)), "the log is written")
        return [line for line in served.log_lines(begin) if "made" in line]

    return look


def warn_in_one_second(log: Log) -> None:
    """Writes many warnings within a second of the log's clock, however long the system holds the process."""
    now = log._limit._clock()
    with mock.patch.object(log._limit, "_clock", lambda: now):
        for _ in range(99):
            log.warning("made")


def exported(settings: tuple[str, ...]) -> tuple[list[str], int]:
    """Returns where spans go, and how many of 20 calls send them."""
    places: list[str] = []
    exporter = InMemorySpanExporter()

    def note(endpoint: str) -> InMemorySpanExporter:
        places.append(endpoint)
        return exporter

    with mock.patch.object(tracing, "_exporter_to", note), serve(*settings) as served:
        with grpc.insecure_channel(served.address) as channel:
            for _ in range(20):
                call(channel, GET_INFO)
        served.wait_for_calls()
        if served.state.telemetry._tracer is not None:
            served.state.telemetry._tracer.close()
        spans = exporter.get_finished_spans()
    return places, sum(span.name == GET_INFO[1:] for span in spans)


TOKENS = ("auth.token_file={folder}/tokens",)
MIB = 1024**2
OTEL = "http://127.0.0.1:4317"
TEXT_2000 = pb.GenerateRequest(text="the cat " * 250, stop=types_pb2.StopOptions(max_tokens=1))
SCORED = ask([300], 1, output=types_pb2.OutputOptions(prompt_logprobs=True))
BRIEF = admin_pb2.ProfileRequest(steps=1, time_limit=seconds(0.01))
WITH_LOGITS = pb.PrefillRequest(text="the cat", step=pb.StepOptions(logits=True))

SERVER_EFFECTS: dict[str, Effect] = {
    "listen.grpc": Effect(
        '["127.0.0.1:0", "127.0.0.1:0"]', on_server(lambda served: len(served.server.addresses)), 1, 2
    ),
    "listen.health": Effect(
        "127.0.0.1:0", code_of(CHECK, lambda served: served.server.health_address), "nowhere", "OK"
    ),
    "listen.admin": Effect(
        "127.0.0.1:0", code_of(f"/{ADMIN}/ListRequests", lambda served: served.server.admin_address), "nowhere", "OK"
    ),
    "listen.metrics": Effect("127.0.0.1:0", on_server(scraped), "nowhere", 200),
    "listen.reflection": Effect("false", code_of(f"/{REFLECTION}/ServerReflectionInfo"), "OK", "UNIMPLEMENTED"),
    "listen.compat": Effect('["vllm"]', code_of("/vllm.grpc.engine.VllmEngine/GetServerInfo"), "UNIMPLEMENTED", "OK"),
    "tls.cert": Effect(
        "{folder}/cert.pem", handshakes, "CONFIG_INVALID", (False, True, True), ("tls.key={folder}/key.pem",)
    ),
    "tls.key": Effect(
        "{folder}/key.pem", handshakes, "CONFIG_INVALID", (False, True, True), ("tls.cert={folder}/cert.pem",)
    ),
    "tls.client_ca": Effect(
        "{folder}/ca.pem",
        handshakes,
        (False, True, True),
        (False, True, False),
        ("tls.cert={folder}/cert.pem", "tls.key={folder}/key.pem"),
    ),
    "auth.token_file": Effect("{folder}/tokens", with_tokens(code_of(GET_INFO)), "OK", "UNAUTHENTICATED"),
    "auth.api_key_file": Effect("{folder}/keys", with_keys(code_of(GET_INFO)), "OK", "UNAUTHENTICATED"),
    "auth.public_health": Effect("false", with_tokens(code_of(CHECK)), "OK", "UNAUTHENTICATED", TOKENS),
    "model.name": Effect("mine", on_server(lambda served: served.state.model.name), "imp demo", "mine"),
    "model.aliases": Effect('["other"]', status_of(generated(ask([300], 1, model="other"))), "MODEL_NOT_SERVED", "OK"),
    "limits.max_tokens": Effect("9", on_server(n_output), 512, 9),
    "limits.max_inputs": Effect("1", status_of(embedded), "OK", "FIELD_INVALID", also=(POOLED,)),
    "limits.max_prompt_bytes": Effect("1KiB", status_of(generated(TEXT_2000)), "OK", "FIELD_INVALID"),
    "limits.request_time": Effect("100s", stream_argument(lambda _, time_limit: math.ceil(time_limit)), 3600, 100),
    "scheduler.max_waiting": Effect("1", status_of(generated(ask([300], 1, num_sequences=2))), "OK", "FIELD_INVALID"),
    "scheduler.max_waiting_bytes": Effect("1KiB", status_of(generated(TEXT_2000)), "OK", "QUEUE_FULL"),
    "sessions.max": Effect("7", on_server(n_sessions(["a", "b", "c"])), 40, 7),
    "sessions.per_tenant": Effect("7", on_server(n_sessions(["a"])), 32, 7),
    "sessions.ttl": Effect("100s", on_server(session_ends), 60, 100),
    "sessions.max_ttl": Effect(
        "90s",
        status_of(lambda served: SessionCalls(served).prefill([300], ttl=seconds(91))),
        "OK",
        "FIELD_INVALID",
    ),
    "text.threads": Effect("3", state_value(lambda state: state.workers._pool._max_workers), 1, 3),
    "features.logits": Effect(
        "false", status_of(lambda served: served.inference.Prefill(WITH_LOGITS)), "OK", "FEATURE_DISABLED"
    ),
    "features.prompt_logprobs": Effect("false", status_of(generated(SCORED)), "OK", "FEATURE_DISABLED"),
    "features.profile": Effect(
        "false",
        status_of(lambda served: list(served.admin.Profile(BRIEF))),
        "OK",
        "FEATURE_DISABLED",
        ("listen.admin=127.0.0.1:0",),
    ),
    "chunk.max_tokens": Effect("5", stream_argument(lambda limits, _: limits.max_tokens), 64, 5),
    "chunk.max_delay": Effect("250ms", stream_argument(lambda limits, _: limits.max_delay), 0.0, 0.25),
    "slow_client.bytes": Effect("8KiB", stream_argument(lambda limits, _: limits.max_bytes), 65536, 8192),
    "slow_client.timeout": Effect("2500ms", stream_argument(lambda limits, _: limits.timeout), 30.0, 2.5),
    "drain.delay": Effect("10s", on_server(drain_begins), 0, 10),
    "drain.grace": Effect("40s", on_server(drain_cuts), 5, 40),
    "watchdog.request_stall": Effect("2500ms", state_value(lambda state: state.watchdog._request_stall), 5.0, 2.5),
    "watchdog.engine_stall": Effect("2500ms", state_value(lambda state: state.watchdog._engine_stall), 10.0, 2.5),
    "log.format": Effect(
        "text", on_server(lambda served: log_lines(lambda log: log.info("made"))(served)[0][0] == "{"), True, False
    ),
    "log.level": Effect("error", on_server(lambda served: len(log_lines(lambda log: log.info("made"))(served))), 1, 0),
    "log.max_lines_per_second": Effect(
        "3",
        on_server(lambda served: len(log_lines(warn_in_one_second)(served))),
        20,
        3,
    ),
    "tracing.endpoint": Effect(OTEL, lambda _, settings: exported(settings), ([], 0), ([OTEL], 20)),
    "tracing.sample": Effect(
        "0", lambda _, settings: exported(settings), ([OTEL], 20), ([OTEL], 0), (f"tracing.endpoint={OTEL}",)
    ),
}
