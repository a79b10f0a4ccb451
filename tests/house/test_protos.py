"""The protos are clean and break no client of the last release; the committed package and the wheel match them."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import imp_service
from support.run.patience import HANGS_AFTER

ROOT = Path(__file__).resolve().parents[2]
PROTO = ROOT / "proto"
PB = ROOT / "service" / "imp_service" / "pb"
# Next to this interpreter, where buf-bin installs it, or anywhere on PATH.
BUF = shutil.which("buf", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]))
Buf = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def buf(tmp_path: Path) -> Buf:
    """A function that runs buf in a folder, without a home directory and without a network."""
    assert isinstance(BUF, str), "buf is not installed: pip install buf-bin"

    def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
        environment = {"PATH": os.defpath, "BUF_CACHE_DIR": str(tmp_path / "cache")}
        return subprocess.run(
            [BUF, *words], cwd=folder, env=environment, capture_output=True, text=True, timeout=HANGS_AFTER, check=False
        )

    return run


@pytest.fixture
def changed(tmp_path: Path) -> Callable[[str, str, str], Path]:
    """A function that copies proto/ and replaces the first `old` in one file by `new`."""

    def change(file: str, old: str, new: str) -> Path:
        copy = tmp_path / "proto"
        shutil.copytree(PROTO, copy)
        path = copy / "imp" / "v1" / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new, 1))
        return copy

    return change


def test_rpc_23_protos_pass_lint_and_format(buf: Buf):
    for words in (("lint",), ("format", "--diff")):
        found = buf(PROTO, *words)
        assert (found.returncode, found.stdout, found.stderr) == (0, "", ""), words


def test_rpc_23_a_missing_comment_and_a_wrong_indent_are_found(buf: Buf, changed):
    copy = changed("inference.proto", "  // Frees a session. Freeing one that is gone is not an error.\n", "")
    found = buf(copy, "lint")
    assert found.returncode == 100
    assert 'RPC "ReleaseSession" should have a non-empty comment' in found.stdout
    path = copy / "imp" / "v1" / "inference.proto"
    path.write_text(path.read_text().replace("  rpc ReleaseSession", "   rpc ReleaseSession"))
    assert "+  rpc ReleaseSession" in buf(copy, "format", "--diff").stdout


def test_rpc_23_nothing_is_broken_since_the_last_release(buf: Buf):
    found = buf(PROTO, "breaking", "--against", "released.binpb")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("admin.proto", "  rpc Resume(ResumeRequest) returns (ResumeResponse);\n", ""),
        ("types.proto", "  FINISH_REASON_ABORTED = ", "  FINISH_REASON_KILLED = "),
    ],
)
def test_rpc_23_a_deleted_method_and_a_renamed_value_break(buf: Buf, changed, file: str, old: str, new: str):
    found = buf(changed(file, old, new), "breaking", "--against", "released.binpb")
    assert found.returncode == 100
    assert ('RPC "Resume"' if not new else '"FINISH_REASON_ABORTED"') in found.stdout


def test_rpc_23_b06_the_package_is_what_the_compiler_makes(tmp_path: Path):
    def check(root: Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, str(root / "tools" / "generate_protos.py"), "--check"]
        return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER, check=False)

    found = check(ROOT)
    assert (found.returncode, found.stderr) == (0, "")
    copy = tmp_path / "tree"
    shutil.copytree(PROTO, copy / "proto")
    shutil.copytree(PB, copy / "service" / "imp_service" / "pb", ignore=shutil.ignore_patterns("__pycache__"))
    (copy / "tools").mkdir()
    shutil.copy(ROOT / "tools" / "generate_protos.py", copy / "tools")
    (copy / "proto" / "imp" / "v1" / "model.proto").write_text(
        (PROTO / "imp" / "v1" / "model.proto").read_text().replace("rpc GetLoad(", "rpc ReadLoad(")
    )
    stale = check(copy)
    assert stale.returncode == 1
    assert "model_pb2.py is not what the compiler makes" in stale.stderr


def test_rpc_23_b06_messages_are_parsed_by_the_c_runtime():
    from google.protobuf.internal import api_implementation

    assert api_implementation.Type() == "upb"


def test_rpc_23_the_standard_library_is_never_taken_for_the_package():
    imported = set()
    for path in sorted(PB.glob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                imported.add(str(node.module))
    assert {name.split(".")[0] for name in imported} == {"google", "grpc", "warnings"}
    from imp_service.pb import admin_pb2, inference_pb2, model_pb2, tokenizer_pb2, types_pb2

    modules = (admin_pb2, inference_pb2, model_pb2, tokenizer_pb2, types_pb2)
    names = sorted(module.DESCRIPTOR.name for module in modules)
    assert names == sorted(path.relative_to(PROTO).as_posix() for path in PROTO.rglob("*.proto"))
    assert {module.DESCRIPTOR.package for module in modules} == {"imp.v1"}


def test_rpc_23_the_protos_are_installed_beside_the_package():
    folders = [Path(folder) / "proto" for folder in imp_service.__path__ if (Path(folder) / "proto").is_dir()]
    assert len(folders) == 1
    installed = {p.relative_to(folders[0]).as_posix(): p.read_bytes() for p in folders[0].rglob("*") if p.is_file()}
    assert installed == {p.relative_to(PROTO).as_posix(): p.read_bytes() for p in PROTO.rglob("*.proto")}
