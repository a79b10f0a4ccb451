"""Messages to a service manager: the server serves, stops, is alive. NOTIFY_SOCKET of systemd: see sd_notify(3)."""

import asyncio
import contextlib
import os
import socket
from collections.abc import Callable, Iterator, Mapping

READY, STOPPING, ALIVE = "READY=1", "STOPPING=1", "WATCHDOG=1"


class Notifier:
    """Without a service manager it sends nothing."""

    def __init__(self, warn: Callable[[str], None], environment: Mapping[str, str] = os.environ) -> None:
        """`warn` gets a sentence if a message cannot be sent; the server goes on."""
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._watchdog_seconds = _watchdog_seconds(environment)
        self._warn = warn
        self._has_failed = False

    def send(self, message: str, status: str = "") -> None:
        """Sends a message, with a status for people if there is one."""
        if not self._address:
            return
        lines = [message, *([f"STATUS={status}"] if status else [])]
        # A name that begins with @ is of Linux's abstract name space.
        address = f"\0{self._address[1:]}" if self._address.startswith("@") else self._address
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
                connection.setblocking(False)
                connection.sendto("\n".join(lines).encode(), address)
        except (OSError, ValueError) as error:
            if not self._has_failed:
                self._warn(f"NOTIFY_SOCKET={self._address}: {error}, expected the socket of a service manager")
            self._has_failed = True

    @contextlib.contextmanager
    def keep_alive(self, is_alive: Callable[[], bool]) -> Iterator[None]:
        """Says during the block that the event loop runs, as often as the manager asks for, while `is_alive` agrees."""
        if self._watchdog_seconds is None:
            yield
            return
        task = asyncio.get_running_loop().create_task(self._repeat(self._watchdog_seconds / 2, is_alive))
        try:
            yield
        finally:
            task.cancel()

    async def _repeat(self, seconds: float, is_alive: Callable[[], bool]) -> None:
        while True:
            if is_alive():
                self.send(ALIVE)
            await asyncio.sleep(seconds)


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """The time after which the manager considers this process dead; None if it does not watch it."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None  # meant for another process
    text = environment.get("WATCHDOG_USEC", "")
    return int(text) / 1e6 if text.isascii() and text.isdigit() and int(text) > 0 else None
