"""The list of commands. A command is one module with `configure(parser)` and `run(arguments)`, and one row here.

Only the module of the command that was typed is imported: the rest costs nothing at start.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from imp_service.cli.preflight import NUMPY_BYTES


class CommandModule(Protocol):
    EXAMPLES: Sequence[str]  # command lines; help shows them

    def configure(self, parser: ArgumentParser) -> None:
        """Adds the command's own arguments."""

    def run(self, arguments: Namespace) -> int:
        """Does it; returns the exit status. Errors are raised: the shell knows their line and their status."""


class Command(NamedTuple):
    name: str
    text: str
    methods: tuple[str, ...] = ()  # words that may follow it; where none does, the first is meant
    room_bytes: int = 0  # of addresses, without which it ends before it loads a library

    def module(self) -> CommandModule:
        return cast(CommandModule, import_module(f"imp_service.cli.{self.name}"))


CALL_METHODS = ("generate", "chat", "info", "load", "health", "tokenize", "detokenize")
COMMANDS = (
    Command("run", "continue a text", room_bytes=NUMPY_BYTES),
    Command("chat", "talk with a model", room_bytes=NUMPY_BYTES),
    Command("serve", "serve a model over gRPC", room_bytes=NUMPY_BYTES),
    Command("call", "call a running server", CALL_METHODS),
    Command("top", "watch a running server"),
    Command("admin", "operate a running server: drain, abort, profile, reload"),
    Command("inspect", "show what a model file is and whether it fits", room_bytes=NUMPY_BYTES),
    Command("bench", "measure a model against this machine's limits, or a server", room_bytes=NUMPY_BYTES),
    Command("tune", "measure which kernels are fastest on this machine", room_bytes=NUMPY_BYTES),
    Command("kernels", "list the matrix kernels, or explain which one runs"),
    Command("k8s", "print Kubernetes manifests, sized for a model", room_bytes=NUMPY_BYTES),
    Command("doctor", "say whether imp can run here, and what it sees of this machine", room_bytes=NUMPY_BYTES),
    Command("config", "show, check or write the settings"),
    Command("completion", "print what makes a shell complete imp's words"),
)
