"""Addresses, sizes, counts and durations: accepted texts, and that a written value reads back."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from imp_service.config.address import Address
from imp_service.config.kinds import UnfitError
from imp_service.config.quantities import Count, Duration, Size

SIZE, COUNT, DURATION = Size(0, 2**60), Count(0, 2**60), Duration("0s", "720h")

SIZES = {
    "8GiB": 8 * 2**30,
    "8 GiB": 8 * 2**30,
    "8Gi": 8 * 2**30,
    "8G": 8 * 2**30,
    "32K": 32768,
    "4 MiB": 4 * 2**20,
    "1.5GiB": 3 * 2**29,
    "512B": 512,
    "512": 512,
    "2T": 2**41,
}
NO_SIZES = ["8GB", "8kB", "8k", "8g", "8  GiB", "8 Gi B", "GiB", "", " 8G", "8G ", "-8G", "1e3", "0x10", "8iB", "0.5",
            "1.0000000001K", "9" * 21, "8GiBx", "٣K"]  # fmt: skip


@pytest.mark.parametrize("text", SIZES)
def test_cfg_1_sizes(text: str):
    assert SIZE.read(text) == SIZES[text]


@pytest.mark.parametrize("text", NO_SIZES)
def test_cfg_3_what_is_no_size(text: str):
    with pytest.raises(UnfitError):
        SIZE.read(text)


def test_cfg_1_counts_have_no_bytes():
    assert [COUNT.read(text) for text in ("32K", "1 Mi", "7", 7)] == [32768, 2**20, 7, 7]
    for text in ("32KiB", "7B", "7i", "1.5"):
        with pytest.raises(UnfitError):
            COUNT.read(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"), [("5ms", 5), ("30s", 30_000), ("1.5s", 1500), ("10 m", 600_000), ("2h", 7_200_000)]
)
def test_cfg_1_durations(text: str, milliseconds: int):
    assert DURATION.read(text) == timedelta(milliseconds=milliseconds)


@pytest.mark.parametrize("value", ["5", 5, "5 sec", "1d", "-1s", "1s1s", "", "1e3s", "0.0001ms", "99999999999999999h"])
def test_cfg_3_what_is_no_duration(value: object):
    with pytest.raises(UnfitError):
        DURATION.read(value)


@given(st.integers(0, 2**60))
def test_cfg_1_sizes_and_counts_read_back(value: int):
    assert SIZE.read(SIZE.plain(value)) == value
    assert COUNT.read(COUNT.plain(value)) == value


@given(st.timedeltas(timedelta(0), timedelta(hours=720)))
def test_cfg_1_durations_read_back(value: timedelta):
    assert DURATION.read(DURATION.plain(value)) == value


@pytest.mark.parametrize(
    ("text", "host", "port", "is_local", "local_text"),
    [
        ("127.0.0.1:50051", "127.0.0.1", 50051, True, "127.0.0.1:50051"),
        ("127.8.0.1:1", "127.8.0.1", 1, True, "127.8.0.1:1"),
        ("localhost:0", "localhost", 0, True, "localhost:0"),
        ("[::1]:7", "::1", 7, True, "[::1]:7"),
        ("0.0.0.0:50051", "0.0.0.0", 50051, False, "127.0.0.1:50051"),
        ("[::]:50051", "::", 50051, False, "[::1]:50051"),
        ("[2001:db8::1]:9", "2001:db8::1", 9, False, "[2001:db8::1]:9"),
        ("imp.example:443", "imp.example", 443, False, "imp.example:443"),
    ],
)
def test_a_port(text: str, host: str, port: int, is_local: bool, local_text: str) -> None:
    address = Address(text)
    assert (address.host, address.port, address.socket_path) == (host, port, None)
    assert (address.is_local, address.local_text) == (is_local, local_text)
    assert Address(address.with_port(12)).port == 12
    assert Address(address.with_port(12)).host == host


def test_a_socket() -> None:
    address = Address("unix:///run/imp:1/imp.sock")
    assert address.socket_path == Path("/run/imp:1/imp.sock")
    assert (address.is_local, address.local_text) == (True, address.text)


@pytest.mark.parametrize(
    ("one", "other", "collide"),
    [
        ("127.0.0.1:1", "127.0.0.1:1", True),
        ("localhost:1", "127.0.0.1:1", True),
        ("0.0.0.0:1", "10.0.0.1:1", True),
        ("[::]:1", "127.0.0.1:1", True),
        ("127.0.0.1:1", "127.0.0.1:2", False),
        ("127.0.0.1:1", "10.0.0.1:1", False),
        ("127.0.0.1:0", "127.0.0.1:0", False),
        ("unix:///a", "unix:///a", True),
        ("unix:///a", "unix:///b", False),
        ("unix:///a", "0.0.0.0:1", False),
    ],
)
def test_two_that_cannot_be_listened_on_at_once(one: str, other: str, collide: bool) -> None:
    assert Address(one).collides_with(Address(other)) == Address(other).collides_with(Address(one)) == collide
