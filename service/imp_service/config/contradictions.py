"""What listeners cannot be together: one address twice, control for everyone, half of a certificate."""

from collections.abc import Iterator

from imp_service.config.address import Address
from imp_service.config.quantities import write_duration
from imp_service.config.server_settings import Connection, Listen, Tls
from imp_service.config.settings import Settings
from imp_service.config.toml import KeyPath

Contradiction = tuple[KeyPath, KeyPath, str]


def listen_contradictions(settings: Settings) -> Iterator[Contradiction]:
    """Both keys, and why."""
    yield from _addresses(settings.listen)
    yield from _certificate(settings.tls)
    yield from _age(settings)


def _addresses(listen: Listen) -> Iterator[Contradiction]:
    if not listen.grpc:
        yield ("listen", "grpc"), ("listen",), "found no address, expected one at least"
    if listen.admin is not None and not Address(listen.admin).is_of_this_machine:
        yield ("listen", "admin"), ("listen",), f"found {listen.admin}, expected loopback or a Unix socket"
    taken: list[tuple[str, str]] = []
    named = [("grpc", address) for address in listen.grpc]
    named += [(name, text) for name in ("health", "admin", "metrics") if (text := getattr(listen, name)) is not None]
    for name, address in named:
        for other, earlier in taken:
            if Address(address).collides_with(Address(earlier)):
                keys = f"listen.{name}" if name == other else f"listen.{name} and listen.{other}"
                yield ("listen", name), ("listen", other), f"{keys}: {address} and {earlier} are one address"
        taken.append((name, address))


def _certificate(tls: Tls) -> Iterator[Contradiction]:
    for one, other in (("key", "cert"), ("cert", "key"), ("client_ca", "cert")):
        if getattr(tls, one) is not None and getattr(tls, other) is None:
            yield ("tls", one), ("tls", other), f"tls.{one} is set, and tls.{other} is not"


def _age(settings: Settings) -> Iterator[Contradiction]:
    connection: Connection = settings.connection
    longest = settings.limits.request_time
    if connection.max_age is not None and connection.max_age_grace < longest:
        yield (
            ("connection", "max_age_grace"),
            ("limits", "request_time"),
            f"connection.max_age_grace is {write_duration(connection.max_age_grace)}, below limits.request_time, "
            f"{write_duration(longest)}: an aged connection would cut requests that may still run",
        )
