"""Addresses as people type them: what gRPC gets, and the message for a bad one."""

from __future__ import annotations

import pytest

from imp_service.client.read_address import read_address

READ = {
    "localhost": "localhost:50051",
    "127.0.0.1": "127.0.0.1:50051",
    "imp.example:443": "imp.example:443",
    "::1": "[::1]:50051",
    "[::1]": "[::1]:50051",
    "[::1]:7": "[::1]:7",
    "dns:///imp.example": "dns:///imp.example:50051",
    "dns://8.8.8.8/imp.example:1": "dns://8.8.8.8/imp.example:1",
    "dns:imp": "dns:imp:50051",
    "ipv4:10.0.0.1": "ipv4:10.0.0.1:50051",
    "ipv4:10.0.0.1:1,10.0.0.2:1": "ipv4:10.0.0.1:1,10.0.0.2:1",
    "ipv6:[::1]": "ipv6:[::1]:50051",
    "unix:///run/imp.sock": "unix:///run/imp.sock",
    "unix:imp.sock": "unix:imp.sock",
}
REFUSED = {
    "": "is empty",
    "http://imp:50051": "is a URL, expected host:port without http://",
    "https://imp/x": "without https://, with --tls",
    "imp:99999": "port 99999, expected 1 to 65535",
    "imp:0": "port 0",
    "imp:grpc": "port grpc",
    ":50051": "expected host:port",
    "two words": "expected host:port",
    "run/imp.sock": "expected host:port or unix:///path",
}


@pytest.mark.parametrize(("typed", "address"), READ.items())
def test_cmd_5_an_address_without_a_port_has_imps(typed: str, address: str) -> None:
    assert read_address(typed) == address


@pytest.mark.parametrize(("typed", "words"), REFUSED.items())
def test_cmd_5_what_is_no_address_is_reported(typed: str, words: str) -> None:
    with pytest.raises(ValueError, match="expected") as caught:
        read_address(typed)
    assert words in str(caught.value)
