"""A server tells its service manager when it serves, when it drains, and that it is alive."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from imp_service.cli.serve.notifier import ALIVE, READY, STOPPING, Notifier
from support.run.patience import HANGS_AFTER
from support.servers.server_process import server_process


class Manager:
    """The service manager's socket; `address` is NOTIFY_SOCKET."""

    def __init__(self, address: str) -> None:
        self.address = address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(f"\0{address[1:]}" if address.startswith("@") else address)
        self._socket.settimeout(HANGS_AFTER)

    def hear(self) -> list[str]:
        """Returns the lines of the next message."""
        return self._socket.recv(4096).decode().split("\n")

    def heard(self) -> list[list[str]]:
        """Returns the waiting messages."""
        self._socket.setblocking(False)
        found = []
        try:
            while True:
                found.append(self.hear())
        except BlockingIOError:
            return found

    def close(self) -> None:
        self._socket.close()


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    made = Manager(str(tmp_path / "notify"))
    yield made
    made.close()


def complain(message: str) -> None:
    pytest.fail(message)


@pytest.mark.long
def test_pkg_4_a_server_says_when_it_serves_and_when_it_drains(tmp_path: Path, manager: Manager) -> None:
    """READY=1 comes once the server answers, and STOPPING=1 while a request still runs. The request ends normally."""
    (tmp_path / "home").mkdir()
    environment = {"NOTIFY_SOCKET": manager.address}
    with server_process(tmp_path / "home", environment=environment, is_traced=False) as server:
        assert manager.hear() == [READY, "STATUS=serving imp demo"]
        assert server.ready_file.exists()
        server.run_canary()
        assert manager.heard() == []
        manager._socket.settimeout(HANGS_AFTER)
        server.signal(signal.SIGTERM)
        assert manager.hear() == [STOPPING, "STATUS=draining"]
        assert server.wait_for_end() == 0
    assert manager.heard() == []


@pytest.mark.long
def test_pkg_4_a_server_that_fails_is_never_ready(tmp_path: Path, manager: Manager) -> None:
    (tmp_path / "home").mkdir()
    environment = {"NOTIFY_SOCKET": manager.address}
    words = ("-m", str(tmp_path / "no_such.gguf"))
    with server_process(tmp_path / "home", *words, environment=environment, is_traced=False) as server:
        assert server.wait_for_end() == 66
    assert manager.heard() == []


def test_pkg_4_the_watchdog_hears_of_it_until_the_engine_stalls(manager: Manager) -> None:
    notifier = Notifier(complain, {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "2000"})
    answers = [True] * 3 + [False] * 3

    async def run() -> None:
        asked = asyncio.Event()

        def is_alive() -> bool:
            if len(answers) == 1:
                asked.set()
            return answers.pop(0) if answers else False

        with notifier.keep_alive(is_alive):
            await asyncio.wait_for(asked.wait(), HANGS_AFTER)

    asyncio.run(run())
    assert manager.heard() == [[ALIVE]] * 3


@pytest.mark.parametrize(
    "environment",
    [{}, {"WATCHDOG_USEC": "0"}, {"WATCHDOG_USEC": "-1"}, {"WATCHDOG_USEC": "1000", "WATCHDOG_PID": "1"}],
    ids=["none", "zero", "negative", "of another process"],
)
def test_pkg_4_without_a_watchdog_nothing_is_sent(manager: Manager, environment: dict[str, str]) -> None:
    notifier = Notifier(complain, {"NOTIFY_SOCKET": manager.address, **environment})

    async def run() -> None:
        with notifier.keep_alive(lambda: True):
            assert len(asyncio.all_tasks()) == 1  # no task sends messages

    asyncio.run(run())
    assert manager.heard() == []


def test_pkg_4_the_watchdog_may_be_meant_for_this_process(manager: Manager) -> None:
    asked = {"NOTIFY_SOCKET": manager.address, "WATCHDOG_USEC": "1000", "WATCHDOG_PID": str(os.getpid())}
    notifier = Notifier(complain, asked)

    async def run() -> None:
        with notifier.keep_alive(lambda: True):
            assert await asyncio.get_running_loop().run_in_executor(None, manager.hear) == [ALIVE]

    asyncio.run(run())


def test_pkg_4_the_abstract_name_space_works(tmp_path: Path) -> None:
    manager = Manager(f"@imp-{tmp_path}")
    try:
        Notifier(complain, {"NOTIFY_SOCKET": manager.address}).send(READY, "fine")
        assert manager.hear() == [READY, "STATUS=fine"]
    finally:
        manager.close()


@pytest.mark.parametrize("address", ["/no/such/socket", "vsock:2:1", "relative", "/" + "x" * 200, "@" + "x" * 200])
def test_pkg_4_an_address_that_cannot_be_reached_is_one_warning(address: str) -> None:
    warnings: list[str] = []
    notifier = Notifier(warnings.append, {"NOTIFY_SOCKET": address})
    notifier.send(READY)
    notifier.send(STOPPING)
    (warning,) = warnings
    assert warning.startswith(f"NOTIFY_SOCKET={address}: ") and warning.endswith("the socket of a service manager")


def test_pkg_4_without_a_manager_nothing_happens() -> None:
    Notifier(complain, {}).send(READY)
    Notifier(complain, {"NOTIFY_SOCKET": ""}).send(READY)
