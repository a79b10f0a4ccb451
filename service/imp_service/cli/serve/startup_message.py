"""The message that a server is ready: for people on a terminal, else one line of the log."""

import os
import shlex
from typing import TYPE_CHECKING, Any

from imp_service import __version__
from imp_service.cli.banner import device_text, drafters_notes, is_built_in, threads_text
from imp_service.cli.output import memory_text
from imp_service.cli.serve.shown_lines import END_LINE, http_lines, is_for_people, print_message
from imp_service.client.read_address import DEFAULT_ADDRESS
from imp_service.config.address import Address

if TYPE_CHECKING:
    from imp_service.cli.serve.front_link import FrontLink
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


async def announce_to_front(service: "Service", link: "FrontLink") -> None:
    """Tells the front what this process serves, once HTTP answers. On a terminal the front prints it, once."""
    await service.http.wait_started()
    server = service.server
    addresses = [*server.addresses, *(text for text in (server.health_address, server.admin_address) if text)]
    message = {
        "facts": facts(service),
        "notes": _model_notes(service),
        "lines": _grpc_lines(service),
        "requires_tokens": service.requires_tokens,
    }
    link.tell(addresses, message)
    if not is_for_people(service.state.settings):
        _log(service)
    _warn(service)


def announce(service: "Service") -> None:
    """Prints or logs the addresses, the model, the device, and the warnings of the model."""
    settings = service.state.settings
    if is_for_people(settings):
        http = http_lines(settings, service.http.addresses, requires_tokens=service.requires_tokens)
        print_message(_model_notes(service), [*_grpc_lines(service), *http, END_LINE])
    else:
        _log(service)
    _warn(service)


def _log(service: "Service") -> None:
    state = service.state
    model = state.model
    state.telemetry.log.info(
        "serving",
        version=__version__,
        **{name: value for name, value in facts(service).items() if value is not None},  # type: ignore[arg-type]
        device=model.core.device_name,
        threads=threads_text(state.config),
        memory=_memory_text(model.core.memory),
        fingerprint=model.fingerprint.digest,
        config=str(state.config.file) if state.config.file else "defaults",
    )


def _warn(service: "Service") -> None:
    for warning in service.state.model.warnings:
        service.state.telemetry.log.warning("model", message=warning)


def _memory_text(memory: dict[str, Any]) -> str:
    """The memory plan: "weights 3.7 MiB, kv 4.0 MiB, …; in all 270 MiB of 23.5 GiB"."""
    items: dict[str, int] = memory["items"]
    parts = ", ".join(f"{name} {memory_text(n_bytes)}" for name, n_bytes in items.items())
    return f"{parts}; in all {memory_text(sum(items.values()))} of {memory_text(memory['budget_bytes'])}"


def _model_notes(service: "Service") -> list[str]:
    state = service.state
    name = "built-in demo" if is_built_in(state.config) else state.model.name
    return [
        f"imp {__version__}  model: {name}  {device_text(state.model)}",
        f"memory: {_memory_text(state.model.core.memory)}",
        *drafters_notes(state.model),
    ]


def _grpc_lines(service: "Service") -> list[str]:
    server = service.server
    others = {"health": server.health_address, "admin": server.admin_address, "metrics": service.http.metrics_address}
    return [
        f"serving gRPC (imp.v1) on {' and '.join(server.addresses)}"
        + "".join(f", {what} on {address}" for what, address in others.items() if address),
        f"  {call_line(service)}",
    ]


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
