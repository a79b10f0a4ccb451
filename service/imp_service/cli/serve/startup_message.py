"""The message that a server is ready: for people on a terminal, else one line of the log."""

import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

from imp_service import __version__
from imp_service.cli.banner import device_text, is_built_in, print_drafters, threads_text
from imp_service.cli.output import memory_text
from imp_service.cli.terminal import print_note
from imp_service.client.read_address import DEFAULT_ADDRESS
from imp_service.config.address import Address

if TYPE_CHECKING:
    from imp_service.server.service import Service


def facts(service: "Service") -> dict[str, object]:
    """The content of the ready file."""
    server = service.server
    return {
        "grpc": server.addresses,
        "http": service.http.addresses or None,
        "health": server.health_address,
        "metrics": service.http.metrics_address,
        "admin": server.admin_address,
        "pid": os.getpid(),
        "model": service.state.model.name,
    }


def announce(service: "Service") -> None:
    """Prints or logs the addresses, the model, the device, and the warnings of the model."""
    state = service.state
    config, model = state.config, state.model
    if sys.stderr.isatty() and config.settings.log.format is None:
        _print_message(service)
    else:
        state.telemetry.log.info(
            "serving",
            version=__version__,
            **{name: value for name, value in facts(service).items() if value is not None},  # type: ignore[arg-type]
            device=model.core.device_name,
            threads=threads_text(config),
            memory=_memory_text(model.core.memory),
            config=str(config.file) if config.file else "defaults",
        )
    for warning in model.warnings:
        state.telemetry.log.warning("model", message=warning)


def _memory_text(memory: dict[str, Any]) -> str:
    """The memory plan: "weights 3.7 MiB, kv 4.0 MiB, …; in all 270 MiB of 23.5 GiB"."""
    items: dict[str, int] = memory["items"]
    parts = ", ".join(f"{name} {memory_text(n_bytes)}" for name, n_bytes in items.items())
    return f"{parts}; in all {memory_text(sum(items.values()))} of {memory_text(memory['budget_bytes'])}"


def _print_message(service: "Service") -> None:
    state, server = service.state, service.server
    name = "built-in demo" if is_built_in(state.config) else state.model.name
    others = {"health": server.health_address, "admin": server.admin_address, "metrics": service.http.metrics_address}
    print_note(f"imp {__version__}  model: {name}  {device_text(state.model)}")
    print_note(f"memory: {_memory_text(state.model.core.memory)}")
    print_drafters(state.model)
    lines = [
        f"serving gRPC (imp.v1) on {' and '.join(server.addresses)}"
        + "".join(f", {what} on {address}" for what, address in others.items() if address),
        f"  {call_line(service)}",
        *_http_lines(service),
        "  Ctrl-C lets running requests finish, a second Ctrl-C ends them",
    ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def _http_lines(service: "Service") -> list[str]:
    """The address of OpenAI's API, and a command that calls it."""
    settings, addresses = service.state.settings, service.http.addresses
    urls = [_url(Address(text), has_tls=settings.tls.cert is not None) for text in addresses]
    if not urls:
        return []
    lines = [f"serving OpenAI's API on {' and '.join(f'{url}/v1' for url in urls)}", f"  {curl_line(service)}"]
    pages = [url for url in urls if url.startswith("http")] if settings.http.playground else []
    return [*lines, *(f"  or try it in a browser: {url}/" for url in pages[:1])]


def _url(address: Address, *, has_tls: bool) -> str:
    if address.socket_path is not None:
        return address.text
    return f"{'https' if has_tls else 'http'}://{address.local_text}"


def curl_line(service: "Service") -> str:
    """A command that asks for a chat completion."""
    settings, address = service.state.settings, Address(service.http.addresses[0])
    words = ["curl"]
    if address.socket_path is not None:
        words += ["--unix-socket", str(address.socket_path), "http://localhost/v1/chat/completions"]
    else:
        words += ["--cacert", "CA.pem"] if settings.tls.cert is not None else []
        words += [f"{_url(address, has_tls=settings.tls.cert is not None)}/v1/chat/completions"]
    words += ["-H", "content-type: application/json"]
    if service.requires_tokens:
        words += ["-H", "authorization: Bearer TOKEN"]
    return shlex.join([*words, "-d", '{"messages": [{"role": "user", "content": "Hello!"}]}'])


def call_line(service: "Service") -> str:
    """A command that calls this server, ready to paste into another shell of this machine."""
    settings = service.state.config.settings
    continues = ["generate", "Once upon a time"]  # without a chat template
    words = ["imp", "call", *(continues if service.state.model.text.templates.is_empty else ["Hello!"])]
    # Prefers an address of this machine; a wildcard address is reached by loopback.
    addresses = [Address(text) for text in service.server.addresses]
    chosen = next((address for address in addresses if address.is_local), addresses[0])
    target = chosen.local_text
    if target != DEFAULT_ADDRESS:
        words += ["--target", target]
    if settings.tls.cert is not None and chosen.socket_path is None:
        words += ["--tls", "--ca", "CA.pem"] + (["--cert", "C.pem", "--key", "C.key"] if settings.tls.client_ca else [])
    if service.requires_tokens:
        words += ["--token-file", "TOKEN"]
    return shlex.join(words)
