"""What the tests of the examples share: a started server, and every example as a command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from support.command_line import FOUND_IN
from support.patience import BUILD_SECONDS
from support.server_process import ServerProcess, server_process

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# A folder that git ignores: what was built once is built.
CPP_BUILD = ROOT / "build" / "examples-cpp"
CPP_TOOLS = ("make", "protoc", "grpc_cpp_plugin", "pkg-config")
# No token ends a text, so that it is not over before a deadline is.
ENDLESS = ("-c", "16K", "--set", "model.overrides.eos_token_ids=[]")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One for all of them, on TCP and on a Unix socket, and over HTTP."""
    folder = tmp_path_factory.mktemp("examples")
    listen = ("--listen", "127.0.0.1:0", "--listen", f"unix://{folder}/imp.sock", "--http", "127.0.0.1:0")
    with server_process(folder, *listen, *ENDLESS) as process:
        process.wait_until_ready()
        yield process


@pytest.fixture(params=["tcp", "unix"])
def target(request: pytest.FixtureRequest, server: ServerProcess) -> str:
    """An address of the server, as a client takes it."""
    addresses: Sequence[str] = server.wait_until_ready()["grpc"]
    return next(address for address in addresses if address.startswith("unix:") == (request.param == "unix"))


@pytest.fixture
def run() -> Run:
    """Runs an example, such as ("node", "generate"), with these arguments; skips where its tools are missing."""

    def run_example(language: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = COMMANDS[language](program)
        environment = {**os.environ, "PYTHONPATH": str(FOUND_IN)}
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=60, check=False, env=environment
        )

    return run_example


@pytest.fixture
def node() -> str:
    """The command; skips where the examples could not run."""
    return _node("generate")[0]


def _python(program: str, folder: str = "python") -> list[str]:
    return [sys.executable, "-P", str(EXAMPLES / folder / f"{program}.py")]


def _node(program: str, folder: str = "node") -> list[str]:
    if shutil.which("node") is None:
        pytest.skip("no node on this machine")
    if not (EXAMPLES / folder / "node_modules").is_dir():
        pytest.skip(f"the packages are not installed: npm install --prefix examples/{folder}")
    return ["node", str(EXAMPLES / folder / f"{program}.mjs")]


def _cpp(program: str) -> list[str]:
    _build_cpp()
    return [str(CPP_BUILD / program)]


@cache
def _build_cpp() -> None:
    missing = [tool for tool in CPP_TOOLS if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: apt install make pkg-config libgrpc++-dev protobuf-compiler-grpc")
    if subprocess.run(["pkg-config", "--exists", "grpc++", "protobuf"], check=False).returncode != 0:
        pytest.skip("no libgrpc++: apt install libgrpc++-dev")
    # What is tested is that it works, not that it is fast: as little optimisation as is quick to compile.
    command = ["make", "-j2", f"BUILD={CPP_BUILD}", "CXXFLAGS=-O0 -Wall -Wextra -Werror"]
    if shutil.which("ccache") is not None:
        command.append("CXX=ccache g++")
    built = subprocess.run(
        command, cwd=EXAMPLES / "cpp", capture_output=True, text=True, timeout=BUILD_SECONDS, check=False
    )
    assert built.returncode == 0, built.stderr


def _curl(program: str) -> list[str]:
    missing = [tool for tool in ("bash", "curl", "xxd", "base64", "awk", "stdbuf") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"no {', '.join(missing)}: apt install bash coreutils curl mawk xxd")
    if "HTTP2" not in subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout:
        pytest.skip("this curl has no HTTP/2")
    return ["bash", str(EXAMPLES / "curl" / f"{program}.sh")]


COMMANDS: dict[str, Callable[[str], list[str]]] = {
    "python": _python,
    "node": _node,
    "cpp": _cpp,
    "curl": _curl,
    "python with openai": lambda program: _python(program, "openai"),
    "node with openai": lambda program: _node(program, "openai"),
    "node with ai": lambda program: _node(program, "vercel"),
}
