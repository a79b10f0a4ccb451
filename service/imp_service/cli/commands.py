"""The list of commands. A command is one module with `configure(parser)` and `run(arguments)`, and one row here.

Only the module of the typed command is imported, so the others cost no start-up time.
"""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from importlib import import_module
from typing import NamedTuple, Protocol, cast

from imp_service.cli.preflight import NUMPY_ADDRESS_SPACE_BYTES


class CommandModule(Protocol):
    EXAMPLES: Sequence[str]  # command lines; help shows them

    def configure(self, parser: ArgumentParser) -> None:
        """Adds the command's own arguments."""

    def run(self, arguments: Namespace) -> int:
        """Runs the command; returns its exit status. Errors are raised: shell.py prints them and chooses the status."""


class Command(NamedTuple):
    name: str
    text: str
    methods: tuple[str, ...] = ()  # subcommands; the first is the default
    address_space_bytes: int = 0  # that its libraries need

    def module(self) -> CommandModule:
        return cast(CommandModule, import_module(f"imp_service.cli.{self.name}"))


CALL_METHODS = ("chat", "generate", "decide", "embed", "rerank", "info", "load", "health", "tokenize", "detokenize")
COMMANDS = (
    Command("run", "answer a question, or continue a text", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command("chat", "talk with a model", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command("decide", "weigh the answers to a question", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command("embed", "make vectors of texts", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command("rerank", "rank documents by a query", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command("serve", "serve a model over gRPC and OpenAI's HTTP API", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command("front", "relay HTTP to servers, and join broken streams"),
    Command("call", "call a running server", CALL_METHODS),
    Command(
        "replay",
        "repeat a recorded stream, and compare the tokens",
        address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES,
    ),
    Command("top", "watch a running server"),
    Command("admin", "operate a running server: drain, abort, profile, reload"),
    Command("pull", "download a model", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command("ls", "list the downloaded models"),
    Command("rm", "delete a downloaded model"),
    Command(
        "inspect",
        "show what a model file holds, and whether it fits in memory",
        address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES,
    ),
    Command(
        "bench",
        "measure the speed of a model or of a server",
        address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES,
    ),
    Command(
        "certify",
        "measure what sparse prefill with a draft model gains and loses",
        address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES,
    ),
    Command("tune", "measure which kernels are fastest on this machine", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command("kernels", "list the matrix kernels, or explain which one runs"),
    Command("k8s", "print Kubernetes manifests, sized for a model", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command("systemd", "print a systemd unit for a model", address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES),
    Command(
        "doctor",
        "check whether imp can run here, and show what it detects",
        address_space_bytes=NUMPY_ADDRESS_SPACE_BYTES,
    ),
    Command("config", "show, check or write the settings"),
    Command("completion", "print a completion script for a shell"),
)
