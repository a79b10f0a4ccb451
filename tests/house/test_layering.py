"""Who may include whom: parses every include and import and refuses any edge that the map does not name."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "service" / "imp_service"

# Room of csrc -> rooms it may include, its own aside.
MAY_INCLUDE = {
    "base": set(),
    "tensor": {"base"},
    "files": {"tensor", "base"},
    "backend": {"tensor", "base"},
    "backend/cpu": {"backend", "tensor", "base"},
    "backend/cuda": {"backend", "tensor", "base"},
    "model": {"backend", "files", "tensor", "base"},
    "engine": {"model", "backend", "tensor", "base"},
    "bindings": {"engine", "model", "backend", "backend/cpu", "backend/cuda", "files", "tensor", "base"},
}
# The one file that names the devices.
MAKES_BACKENDS = {"backend/make_backend.cpp": {"backend/cpu", "backend/cuda"}}

# Room of the package -> rooms and foreign modules it must not import.
MAY_IMPORT = {
    "text": {"text"},
    "config": {"config"},
    "models": {"models"},
    "core": {"core", "config", "models", "_core"},
    "generation": {"generation", "core", "text", "config", "models"},
    "telemetry": {"telemetry", "config"},
    "serving": {"serving", "telemetry", "generation", "core", "text", "config"},
    "pb": {"pb"},
    "client": {"client", "pb"},
    "deploy": {"deploy", "core", "config"},
    "rpc": {"rpc", "pb", "serving", "telemetry", "generation", "core", "text", "config"},
    "ray_app": {"ray_app", "rpc", "pb", "serving", "config"},
    "cli": {
        "cli",
        "rpc",
        "client",
        "deploy",
        "pb",
        "serving",
        "telemetry",
        "generation",
        "core",
        "text",
        "config",
        "models",
    },
}
# Foreign packages that only some rooms may see.
ONLY_IN = {
    "grpc": {"rpc", "client", "pb", "cli", "ray_app"},
    "google": {"rpc", "client", "pb", "cli", "ray_app"},
    "ray": {"ray_app"},
    "prometheus_client": {"telemetry"},
    "opentelemetry": {"telemetry"},
    "yaml": {"deploy"},
    "torch": set(),
    "transformers": set(),
}


def room_of(path: str) -> str:
    parts = path.split("/")
    return "/".join(parts[:2]) if parts[:2] in (["backend", "cpu"], ["backend", "cuda"]) else parts[0]


def include_violations(path: str, text: str) -> list[str]:
    """Edges out of csrc/`path` that the table does not allow."""
    room = room_of(path)
    allowed = MAY_INCLUDE[room] | MAKES_BACKENDS.get(path, set())
    found = []
    for target in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
        other = room_of(target)
        if other != room and other not in allowed:
            found.append(f"csrc/{path} includes {target}: {room} may not see {other}")
    return found


def import_violations(path: str, text: str) -> list[str]:
    """Imports of imp_service/`path` that the table does not allow."""
    room = path.split("/", maxsplit=1)[0] if "/" in path else ""
    found = []
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are written in full"
            names = (
                [f"{node.module}.{alias.name}" for alias in node.names]
                if node.module == "imp_service"
                else [node.module or ""]
            )
        for name in names:
            top, *rest = name.split(".")
            if room not in ONLY_IN.get(top, {room}):
                found.append(f"imp_service/{path} imports {name}")
            if top == "imp_service" and room and rest and rest[0] not in MAY_IMPORT[room]:
                known_root_value = rest[0].startswith("__")
                if not known_root_value:
                    found.append(f"imp_service/{path} imports {name}: {room} may not see {rest[0]}")
    return found


def csrc_files() -> list[Path]:
    return [p for p in sorted(CSRC.rglob("*")) if p.suffix in {".h", ".cpp", ".inl", ".cu", ".cuh"}]


def test_hon_16_csrc_rooms_include_only_what_they_may() -> None:
    files = csrc_files()
    assert len(files) > 20
    assert [v for p in files for v in include_violations(p.relative_to(CSRC).as_posix(), p.read_text())] == []


def test_hon_16_package_rooms_import_only_what_they_may() -> None:
    files = sorted(PACKAGE.rglob("*.py"))
    assert len(files) > 10
    assert [v for p in files for v in import_violations(p.relative_to(PACKAGE).as_posix(), p.read_text())] == []


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("base/error.cpp", '#include "tensor/dtype.h"'),
        ("model/decoder.cpp", '#include "backend/cpu/cpu_backend.h"'),
        ("backend/cpu/norm.cpp", '#include "backend/cuda/device/launch.cuh"'),
        ("backend/backend.h", '#include "backend/cpu/lanes.h"'),
        ("engine/step.cpp", '#include "files/model_file.h"'),
        ("bindings/module.cpp", '#include "native/script/script_model.h"'),
    ],
)
def test_hon_16_a_forbidden_include_is_found(path: str, line: str) -> None:
    assert len(include_violations(path, line)) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("text/tokenizer.py", "from imp_service._core import Engine"),
        ("text/tokenizer.py", "import grpc"),
        ("core/load.py", "from imp_service.cli import run"),
        ("config/schema.py", "from imp_service import core"),
    ],
)
def test_hon_16_a_forbidden_import_is_found(path: str, line: str) -> None:
    assert len(import_violations(path, line)) == 1
