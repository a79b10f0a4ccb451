"""Addresses that are typed: host:port, a port of this machine, or unix:///path."""

import json
from collections.abc import Sequence


def address_list(option: str, words: Sequence[str]) -> str:
    """The list of addresses as TOML. A port alone is one of this machine. Raises ConfigError."""
    from imp_service.config.errors import ConfigError
    from imp_service.config.kinds import UnfitError
    from imp_service.config.server_settings import ADDRESS, HTTP_ADDRESS, SERVER_ADDRESS
    from imp_service.config.toml import excerpt

    kind = {"--http": HTTP_ADDRESS, "--to": SERVER_ADDRESS}.get(option, ADDRESS)
    addresses = [f"127.0.0.1:{word}" if word.isascii() and word.isdigit() else word for word in words]
    for word, address in zip(words, addresses, strict=True):
        try:
            kind.read(address)
        except UnfitError:
            raise ConfigError(option, f"found {excerpt(word, 80)}, expected a port, {kind.what}") from None
    return json.dumps(addresses)
