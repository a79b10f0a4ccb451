"""Fixtures of the examples' tests: a running server, and every example as a command."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from support.machine.command_line import FOUND_IN
from support.run.patience import BUILD_SECONDS, HANGS_AFTER
from support.servers.server_process import ServerProcess, server_process

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
# A folder that git ignores, with a folder for each language. The examples are built once.
BUILD = ROOT / "build"
# The Debian packages with which the Go and Java examples are built.
GO_PACKAGES = Path("/usr/share/gocode/src/google.golang.org")
JARS = Path("/usr/share/java")
# No token ends a text, so that deadlines pass before texts end.
ENDLESS = (
    *("-c", "16K", "--set", "model.overrides.untrained_context=true"),
    *("--set", "model.overrides.eos_token_ids=[]"),
)
# Vectors too.
POOLED = ("--set", "model.overrides.pooling=mean")

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all tests, on TCP, on a Unix socket and over HTTP."""
    folder = tmp_path_factory.mktemp("examples")
    listen = ("--listen", "127.0.0.1:0", "--listen", f"unix://{folder}/imp.sock", "--http", "127.0.0.1:0")
    with server_process(folder, *listen, *ENDLESS, *POOLED) as process:
        process.wait_until_ready()
        yield process


@pytest.fixture(params=["tcp", "unix"])
def target(request: pytest.FixtureRequest, server: ServerProcess) -> str:
    """An address of the server for clients."""
    addresses: Sequence[str] = server.wait_until_ready()["grpc"]
    return next(address for address in addresses if address.startswith("unix:") == (request.param == "unix"))


@pytest.fixture
def run() -> Run:
    """Runs an example, such as ("node", "generate"), with these arguments; skips where its tools are missing."""

    def run_example(language: str, program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = COMMANDS[language](program)
        environment = {**os.environ, "PYTHONPATH": str(FOUND_IN)}
        return subprocess.run(
            [*command, *arguments], capture_output=True, text=True, timeout=HANGS_AFTER, check=False, env=environment
        )

    return run_example


@pytest.fixture
def node() -> str:
    """The command of Node; skips the test if the examples cannot run."""
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
    has_library = shutil.which("pkg-config") is not None and _succeeds("pkg-config", "--exists", "grpc++", "protobuf")
    _needs("cpp", "make", "protoc", "grpc_cpp_plugin", has_library=has_library)
    # -O0, because it compiles fastest and the tests measure no speed.
    compiler = ["CXX=ccache g++"] if shutil.which("ccache") is not None else []
    return [str(_built("cpp", "CXXFLAGS=-O0 -Wall -Wextra -Werror", *compiler) / program)]


def _go(program: str) -> list[str]:
    tools = ("go", "make", "protoc", "protoc-gen-go", "protoc-gen-go-grpc")
    _needs("go", *tools, has_library=(GO_PACKAGES / "grpc").is_dir() and (GO_PACKAGES / "protobuf").is_dir())
    return [str(_built("go") / program)]


def _java(program: str) -> list[str]:
    tools = ("javac", "java", "make", "protoc", "grpc_java_plugin")
    _needs("java", *tools, has_library=all((JARS / f"{name}.jar").is_file() for name in ("grpc-netty", "netty-common")))
    return [str(_built("java") / program)]


def _ruby(program: str) -> list[str]:
    has_library = shutil.which("ruby") is not None and _succeeds("ruby", "-e", 'require "grpc"')
    _needs("ruby", "make", "grpc_tools_ruby_protoc", has_library=has_library)
    return ["ruby", f"-I{_built('ruby')}", str(EXAMPLES / "ruby" / f"{program}.rb")]


def _needs(language: str, *tools: str, has_library: bool) -> None:
    if not has_library or any(shutil.which(tool) is None for tool in tools):
        pytest.skip(f"no gRPC for {language}: apt install what examples/{language}/Makefile names")


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


@cache
def _built(language: str, *settings: str) -> Path:
    """Returns the folder with the examples of this language, which `make` builds."""
    folder = BUILD / f"examples-{language}"
    built = subprocess.run(
        ["make", "-j2", f"BUILD={folder}", *settings],
        cwd=EXAMPLES / language,
        capture_output=True,
        text=True,
        timeout=BUILD_SECONDS,
        check=False,
    )
    assert built.returncode == 0, built.stderr
    return folder


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
    "go": _go,
    "java": _java,
    "ruby": _ruby,
    "curl": _curl,
    "python with openai": lambda program: _python(program, "openai"),
    "node with openai": lambda program: _node(program, "openai"),
    "python with anthropic": lambda program: _python(program, "anthropic"),
    "node with anthropic": lambda program: _node(program, "anthropic"),
    "node with ai": lambda program: _node(program, "vercel"),
}
