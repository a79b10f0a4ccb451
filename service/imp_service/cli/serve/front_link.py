"""The link of an engine process with the front that started it (`imp serve --survive`)."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.address import INHERITED, Address
from imp_service.config.config import Config, build
from imp_service.config.tree import KeyOrigin, Value, branch, merged
from imp_service.front.supervision.advances import PROGRESS

PR_SET_PDEATHSIG = 1
FRONT_LOST = 70
# Its value is the descriptor on which the front asks for engine processes.
PARENT_OPTION = "--parent-of"


@dataclass(frozen=True, slots=True)
class Inherited:
    """The numbers of the descriptors that the front passes on: a listening socket, and the link."""

    listening: int
    link: int

    @classmethod
    def read(cls, text: str) -> "Inherited":
        """The argument of --engine-of, for argparse."""
        listening, link = map(int, text.split(","))
        return cls(listening, link)

    @property
    def words(self) -> tuple[str, str]:
        """The option of the command line."""
        return "--engine-of", f"{self.listening},{self.link}"


class FrontLink:
    """Ends this process when its front ends, and tells the front that this process serves, and who gets further."""

    def __init__(self, inherited: Inherited) -> None:
        self._listening = inherited.listening
        # Other machines reach the front.
        self.is_public = False
        self._socket = socket.socket(fileno=inherited.link)
        self._socket.set_inheritable(False)
        self._sockets: list[Path] = []
        library = ctypes.CDLL(None)
        if hasattr(library, "prctl"):
            # A stopped process would not see the front's end.
            library.prctl(PR_SET_PDEATHSIG, signal.SIGCONT)
        threading.Thread(target=self._wait, name="imp-front", daemon=True).start()

    def engine_config(self, config: Config) -> Config:
        """The settings with the inherited socket in place of the addresses of HTTP, which are the front's."""
        addresses = map(Address, config.settings.listen.http)
        # Of a socket that the front has inherited, this process cannot know where it listens.
        self.is_public = not all(address.is_local and address.descriptor is None for address in addresses)
        value = Value((f"{INHERITED}{self._listening}",), KeyOrigin("option", "--survive"))
        tree = merged(config.tree, branch(("listen", "http"), value))
        return Config(build(tree), config.file, tree)

    def tell(self, addresses: Sequence[str], message: Mapping[str, object]) -> None:
        """This process serves on these addresses. The front gets the message."""
        self._sockets = [path for text in addresses if (path := Address(text).socket_path) is not None]
        self._socket.sendall(json.dumps(message).encode() + b"\n")

    def report(self, progress: Mapping[str, object]) -> None:
        """The front gets what ProgressReports has to say, unless it is so far behind that there is no room."""
        with contextlib.suppress(OSError):
            self._socket.send(json.dumps({PROGRESS: progress}).encode() + b"\n", socket.MSG_DONTWAIT)

    def _wait(self) -> None:
        try:
            while self._socket.recv(1):  # the front sends nothing
                pass
        except OSError:
            pass
        for path in self._sockets:
            path.unlink(missing_ok=True)
        os._exit(FRONT_LOST)
