"""Pairs of settings that cannot work together: each of the two may be valid alone."""

from collections.abc import Iterator, Mapping

from imp_service.config.address import Address
from imp_service.config.quantities import write_duration
from imp_service.config.server_settings import ConnectionSettings, ListenSettings, TlsSettings
from imp_service.config.settings import ModelSettings, Settings
from imp_service.config.toml import KeyPath, write_key, write_path

# Two keys, and why their values contradict each other.
Contradiction = tuple[KeyPath, KeyPath, str]


def contradictions(settings: Settings) -> Iterator[Contradiction]:
    """The contradictions among these settings."""
    scheduler = settings.scheduler
    if scheduler.step_tokens < scheduler.max_running:
        yield (
            ("scheduler", "max_running"),
            ("scheduler", "step_tokens"),
            f"scheduler.max_running is {scheduler.max_running}, above scheduler.step_tokens, {scheduler.step_tokens}: "
            "each sequence takes a token of every step",
        )
    if scheduler.prefill_chunk > scheduler.step_tokens:
        yield (
            ("scheduler", "prefill_chunk"),
            ("scheduler", "step_tokens"),
            f"scheduler.prefill_chunk is {scheduler.prefill_chunk}, "
            f"above scheduler.step_tokens, {scheduler.step_tokens}",
        )
    device = settings.device
    pinned = len(device.cpus) if isinstance(device.cpus, tuple) else 0
    if pinned and isinstance(device.threads, int) and pinned != device.threads:
        yield (
            ("device", "cpus"),
            ("device", "threads"),
            f"device.cpus names {pinned}, and device.threads is {device.threads}: expected one for each thread",
        )
    yield from _addresses(settings.listen)
    yield from _certificate(settings.tls)
    yield from _age(settings)
    yield from _model_names(settings.model, settings.models)


def _model_names(first: ModelSettings, models: Mapping[str, ModelSettings]) -> Iterator[Contradiction]:
    """Each further model needs a file and a unique name."""
    taken: dict[str, KeyPath] = {first.name: ("model", "name")} if first.name else {}
    for key, model in models.items():
        if model.path is None:
            yield ("models", key, "path"), ("models", key), f"models.{write_key(key)} has no path"
        name = model.name or key
        if name in taken:
            yield ("models", key, "name"), taken[name], f"{name} is also the name of {write_path(taken[name])}"
        taken[name] = ("models", key, "name")


def _addresses(listen: ListenSettings) -> Iterator[Contradiction]:
    if not listen.grpc:
        yield ("listen", "grpc"), ("listen",), "found no address, expected one at least"
    if listen.admin is not None and not Address(listen.admin).is_local:
        yield ("listen", "admin"), ("listen",), f"found {listen.admin}, expected loopback or a Unix socket"
    taken: list[tuple[str, str]] = []
    named = [("grpc", address) for address in listen.grpc]
    named += [("http", address) for address in listen.http]
    named += [(name, text) for name in ("health", "admin", "metrics") if (text := getattr(listen, name)) is not None]
    for name, address in named:
        for other, earlier in taken:
            if Address(address).collides_with(Address(earlier)):
                keys = f"listen.{name}" if name == other else f"listen.{name} and listen.{other}"
                yield ("listen", name), ("listen", other), f"{keys}: {address} and {earlier} are one address"
        taken.append((name, address))


def _certificate(tls: TlsSettings) -> Iterator[Contradiction]:
    for one, other in (("key", "cert"), ("cert", "key"), ("client_ca", "cert")):
        if getattr(tls, one) is not None and getattr(tls, other) is None:
            yield ("tls", one), ("tls", other), f"tls.{one} is set, and tls.{other} is not"


def _age(settings: Settings) -> Iterator[Contradiction]:
    connection: ConnectionSettings = settings.connection
    longest = settings.limits.request_time
    if connection.max_age is not None and connection.max_age_grace < longest:
        yield (
            ("connection", "max_age_grace"),
            ("limits", "request_time"),
            f"connection.max_age_grace is {write_duration(connection.max_age_grace)}, below limits.request_time, "
            f"{write_duration(longest)}: an aged connection would cut requests that may still run",
        )
