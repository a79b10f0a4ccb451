"""proto/README.md: users' own stubs import on this Python and call a server; no page installs imp from an index."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER
from support.servers.server_process import server_process

ROOT = Path(__file__).resolve().parents[2]
PROTOS = ROOT / "proto" / "imp" / "v1"
PAGE = (ROOT / "proto" / "README.md").read_text()
# Texts for users: pages, examples, help and messages.
READ = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "examples").rglob("*.*"), ROOT / "proto/README.md"]
SOURCES = [*(ROOT / "service").rglob("*.py"), *(ROOT / "tools").glob("*.py")]


def block(kind: str) -> str:
    (text,) = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    return str(text)


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """A client's environment: the same Python, without imp on its path."""
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "python").write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    (tmp_path / "bin" / "python").chmod(0o755)
    # The page's environment of the generator: here that of the tests, whose index may not be reachable.
    (tmp_path / "protoc" / "bin").mkdir(parents=True)
    (tmp_path / "protoc" / "bin" / "python").symlink_to(tmp_path / "bin" / "python")
    kept = {**clean_environment(tmp_path), "IMP": str(ROOT), "PATH": f"{tmp_path}/bin{os.pathsep}{path}"}
    kept["PYTHONPATH"] = "stubs"
    return kept


def generate(folder: Path, environment: dict[str, str], commands: str) -> None:
    words = ["bash", "-euc", commands]
    made = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER, check=False
    )
    assert made.returncode == 0, made.stderr


def test_rpc_23_stubs_as_the_page_makes_them_call_a_server(tmp_path: Path, environment: dict[str, str]) -> None:
    generate(tmp_path, environment, block("console"))
    serving = tmp_path / "server"
    serving.mkdir()
    with server_process(serving) as server:
        program = block("python").replace("127.0.0.1:50051", server.address)
        assert program != block("python")
        command = [sys.executable, "-c", program]
        ran = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER, check=False
        )
    assert (ran.returncode, ran.stderr) == (0, "")
    assert len(ran.stdout.split()) >= 3


def test_rpc_23_the_page_installs_nothing_beside_imp() -> None:
    """Its generator needs a protobuf below that of imp's other packages: installed there, it broke `imp serve`."""
    installs = re.findall(r"^(\S*)pip3? install (.*)$", PAGE, re.MULTILINE)
    assert ("protoc/bin/", '-q "grpcio-tools==1.80.1"') in installs
    assert [words for where, words in installs if where != "protoc/bin/"] == ["./clients/python"]
    pinned = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "protobuf>=6.31.1,<8" in PAGE and "protobuf>=6.31.1,<8" in pinned["dependencies"]
    assert "grpcio-tools==1.80.1" in pinned["optional-dependencies"]["test"]


def test_rpc_23_stubs_of_other_languages_have_all_services(tmp_path: Path, environment: dict[str, str]) -> None:
    tools = ("protoc", "protoc-gen-go", "protoc-gen-go-grpc", "grpc_java_plugin", "grpc_tools_ruby_protoc")
    if any(shutil.which(tool) is None for tool in tools):
        pytest.skip("no plugins of protoc: apt install what examples/{go,java,ruby}/Makefile name")
    generate(tmp_path, environment, block("console languages"))
    services = re.findall(r"^service (\w+)", "\n".join(map(Path.read_text, PROTOS.glob("*.proto"))), re.MULTILINE)
    assert len(services) == len(list(PROTOS.glob("*.proto"))) - 1  # types.proto has none
    go = "\n".join(file.read_text() for file in (tmp_path / "go/example.com/imp/impv1").glob("*_grpc.pb.go"))
    ruby = "\n".join(file.read_text() for file in (tmp_path / "ruby/imp/v1").glob("*_services_pb.rb"))
    for service in services:
        assert f"type {service}Client interface" in go
        assert (tmp_path / f"java/imp/v1/{service}Grpc.java").is_file()
        assert f"module {service}\n" in ruby


def test_rpc_23_they_live_beside_imps_own_in_one_process(tmp_path: Path, environment: dict[str, str]) -> None:
    generate(tmp_path, environment, block("console"))
    program = (
        "from imp_api.v1 import types_pb2 as own\n"
        "from imp_service.pb import types_pb2 as theirs\n"
        "sent = own.StopOptions(max_tokens=3).SerializeToString()\n"
        "print(theirs.StopOptions.FromString(sent).max_tokens, own.StopOptions.DESCRIPTOR.full_name)\n"
    )
    beside = {**environment, "PYTHONPATH": f"stubs{os.pathsep}{clean_environment(tmp_path)['PYTHONPATH']}"}
    command = [sys.executable, "-c", program]
    ran = subprocess.run(
        command, cwd=tmp_path, env=beside, capture_output=True, text=True, timeout=HANGS_AFTER, check=False
    )
    assert (ran.returncode, ran.stdout) == (0, "3 imp.v1.StopOptions\n"), ran.stderr


def test_rpc_23_without_the_new_name_python_3_11_does_not_import_them(
    tmp_path: Path, environment: dict[str, str]
) -> None:
    """The page's statement about Python 3.11 is true."""
    generate(tmp_path, environment, "".join(block("console").splitlines(keepends=True)[:2]))
    command = [sys.executable, "-W", "ignore", "-c", "from imp.v1 import types_pb2"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER, check=False
    )
    (said,) = re.findall(r"`(No module named 'imp\.v1'; 'imp' is not a package)`", PAGE)
    if sys.version_info >= (3, 12):
        assert ran.returncode == 0, ran.stderr
    else:
        assert ran.returncode == 1 and said in ran.stderr


def test_rpc_23_no_page_installs_imp_from_an_index() -> None:
    """Nobody owns the name there: anyone could publish a package that users then install."""
    pattern = re.compile(r"pip3? install[^\n`]*\bimp[-_]service")
    named = [path for path in (*READ, *SOURCES) if path.is_file() and pattern.search(path.read_text(errors="replace"))]
    assert [str(path.relative_to(ROOT)) for path in named if "node_modules" not in path.parts] == []
