"""Keys whose effect shows on the HTTP listeners."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from http import HTTPStatus
from pathlib import Path
from typing import Any
from unittest import mock

from imp_service.config import ConfigError, read_settings
from imp_service.config.server_settings import LogSettings
from imp_service.front.relay.server import FrontServer
from imp_service.front.relay.state import front_options
from imp_service.http_api.answers import answering
from imp_service.http_api.guard import Guard, HttpRefusal
from imp_service.http_api.listener import Server
from imp_service.telemetry.log import Log
from support.key_effects.effect import Effect, Observe
from support.key_effects.running import Running
from support.machine.command_line import clean_environment
from support.servers.http_served import HttpServed, serve_http
from support.servers.server_process import ServerProcess


def over_http(look: Callable[[HttpServed], Any]) -> Observe:
    """Observes a running server over HTTP."""
    return Running(serve_http, lambda started: started.served, look)


def status_of_head(*pairs: tuple[str, str]) -> Observe:
    """Observes the HTTP status of a request with this head, on a listener that other machines can reach."""

    def observe(_: Path, settings: tuple[str, ...]) -> int:
        chosen = read_settings(None, settings).settings
        guard = Guard(chosen.http.hosts, chosen.http.origins, False, chosen.limits.max_metadata_bytes)
        try:
            guard.check(pairs, has_host=True)
        except HttpRefusal as refused:
            return refused.status
        return HTTPStatus.OK

    return observe


def seconds_of(read: Callable[[Server], float]) -> Observe:
    """Observes a time limit of a listener."""
    return over_http(lambda served: read(served.http._listeners[0]._web))


def heartbeat(_: Path, settings: tuple[str, ...]) -> float:
    """Returns how long a stream waits for its first reply before it sends a comment."""
    with serve_http(*settings) as served, mock.patch.object(answering.asyncio, "wait", wraps=asyncio.wait) as wait:
        assert served.client.stream("/v1/completions", {"prompt": "the", "max_tokens": 1}).has_done
        return float(next(call.kwargs["timeout"] for call in wait.call_args_list if "timeout" in call.kwargs))


def listened_on(folder: Path, settings: tuple[str, ...]) -> int:
    """Returns the number of HTTP addresses when an address for gRPC is set."""
    return len(read_settings(None, ['listen.grpc=["127.0.0.1:0"]', *settings]).settings.listen.http)


def serve_survive(folder: Path, settings: tuple[str, ...]) -> bool:
    """Returns whether `imp serve` has an engine process."""
    http = ("--listen", "127.0.0.1:0", "--http", "127.0.0.1:0")
    server = ServerProcess(folder, *http, settings=settings, is_traced=False)
    try:
        return "engine_pid" in server.wait_until_ready()
    finally:
        server.terminate()


def relays_to(folder: Path, settings: tuple[str, ...]) -> list[str] | str:
    """Returns the servers that `imp front` relays to, or the reason why it does not start."""
    sets = [word for setting in settings for word in ("--set", setting)]
    command = [sys.executable, "-P", "-m", "imp_service", "front", "--http", "127.0.0.1:0", *sets]
    with subprocess.Popen(command, env=clean_environment(folder), stderr=subprocess.PIPE) as front:
        assert front.stderr is not None  # narrows
        # The first line that is not about a server.
        line = next(line for line in map(bytes.decode, front.stderr) if '"upstream"' not in line)
        front.terminate()
    return json.loads(line)["to"] if line.startswith("{") else line.split(": ")[2]


def trusts(_: Path, settings: tuple[str, ...]) -> str | None:
    """Returns the wrong setting for which a front does not start; None: it starts."""
    chosen = read_settings(None, ('listen.http=["127.0.0.1:0"]', *settings), variables={}).settings
    log = Log(LogSettings(level="error"))
    try:
        asyncio.run(FrontServer(chosen, log).stop())
    except ConfigError as error:
        return error.where
    finally:
        log.close()
    return None


def front_option(name: str) -> Observe:
    """Observes an option of a front."""
    return lambda _, settings: getattr(front_options(read_settings(None, settings, variables={}).settings), name)


HTTP_EFFECTS: dict[str, Effect] = {
    "listen.http": Effect('["127.0.0.1:0", "127.0.0.1:0"]', listened_on, 0, 2),
    "front.survive": Effect("true", serve_survive, False, True),
    "front.to": Effect('["127.0.0.1:9"]', relays_to, "USAGE", ["127.0.0.1:9"]),
    "front.ca": Effect("/nowhere.pem", trusts, None, "front.ca"),
    "front.hold": Effect("3s", front_option("hold"), 10.0, 3.0),
    "front.memory": Effect("2MiB", front_option("memory"), 64 * 1024**2, 2 * 1024**2),
    "http.origins": Effect(
        '["https://chat.example.com"]',
        status_of_head(("host", "localhost"), ("origin", "https://chat.example.com")),
        HTTPStatus.FORBIDDEN,
        HTTPStatus.OK,
    ),
    "http.hosts": Effect(
        '["imp.example.com"]',
        status_of_head(("host", "imp.example.com:8000")),
        HTTPStatus.MISDIRECTED_REQUEST,
        HTTPStatus.OK,
    ),
    "http.playground": Effect("false", over_http(lambda served: served.client.get("/").status), 200, 404),
    "http.unknown_fields": Effect(
        "ignore", over_http(lambda served: served.complete(max_tokens=1, frobnicate=1).status), 400, 200
    ),
    "http.public_metrics": Effect(
        "true", over_http(lambda served: served.http._routes.find("GET", "/metrics")[0].policy.is_health), False, True
    ),
    "http.head_timeout": Effect("3s", seconds_of(lambda server: server.times.part), 10.0, 3.0),
    "http.body_timeout": Effect("3s", seconds_of(lambda server: server.times.body), 60.0, 3.0),
    "http.idle_timeout": Effect("5s", seconds_of(lambda server: server._options["keepalive_timeout"]), 75.0, 5.0),
    "http.heartbeat": Effect("2s", heartbeat, 10.0, 2.0),
}
