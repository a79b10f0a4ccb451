"""The list of commands. A command is one module with `configure(parser)` and `run(arguments)`, and one row here.

Only the module of the command that was typed is imported: the rest costs nothing at start.
"""

from argparse import ArgumentParser, Namespace
from importlib import import_module
from typing import NamedTuple, Protocol, cast


class CommandModule(Protocol):
    def configure(self, parser: ArgumentParser) -> None:
        """Adds the command's own arguments."""

    def run(self, arguments: Namespace) -> int:
        """Does it; returns the exit status. Errors are raised: the shell knows their line and their status."""


class Command(NamedTuple):
    name: str
    text: str
    methods: tuple[str, ...] = ()  # words that may follow it; where none does, the first is meant

    def module(self) -> CommandModule:
        return cast(CommandModule, import_module(f"imp_service.cli.{self.name}"))


CALL_METHODS = ("generate", "chat", "info", "load", "health", "tokenize", "detokenize")
COMMANDS = (
    Command("run", "continue a text"),
    Command("chat", "talk with a model"),
    Command("serve", "serve a model over gRPC"),
    Command("call", "call a running server", CALL_METHODS),
    Command("top", "watch a running server"),
    Command("inspect", "show what a model file is and whether it fits"),
    Command("bench", "measure a model beside this machine's limits, or a server"),
    Command("tune", "measure which kernels are fastest on this machine"),
    Command("kernels", "list the matrix kernels, or explain which one runs"),
    Command("k8s", "print Kubernetes manifests with the resources that a model needs"),
    Command("doctor", "say whether imp can run on this machine, and what it sees of it"),
    Command("config", "show, check or write the settings"),
)
