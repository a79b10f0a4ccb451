"""Which modules may include which: parses every include and import and refuses every edge that the map lacks."""

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
CSRC = ROOT / "csrc"
PACKAGE = ROOT / "service" / "imp_service"

# The folders of csrc/engine, from the ground up: each may include those before it.
ENGINE = [
    f"engine/{name}" for name in ("data", "kv", "media", "sequence", "schedule", "step", "speculation", "sparse", "run")
]
# Folder of csrc -> other folders that it may include.
MAY_INCLUDE = {
    "base": set(),
    "tensor": {"base"},
    "files": {"tensor", "base"},
    "text": {"base"},
    "backend": {"tensor", "base"},
    "backend/cpu": {"backend", "tensor", "base"},
    "backend/cuda": {"backend", "tensor", "base"},
    "model/config": {"backend", "tensor", "base"},
    "model/arch": {"model/config", "backend", "files", "tensor", "base"},
    "model/layer": {"model/config", "backend", "tensor", "base"},
    "model/weights": {"model/layer", "model/arch", "model/config", "backend", "files", "tensor", "base"},
    "model": {"model/weights", "model/layer", "model/arch", "model/config", "backend", "files", "tensor", "base"},
    **{room: {"model", "backend", "tensor", "base", *ENGINE[:n]} for n, room in enumerate(ENGINE)},
    "bindings": {
        *ENGINE,
        "model",
        "model/arch",
        "model/config",
        "backend",
        "backend/cpu",
        "backend/cuda",
        "files",
        "text",
        "tensor",
        "base",
    },
}
# Folder of tests/native -> other folders there that it may include; each may include any folder of csrc.
NATIVE = ROOT / "tests" / "native"
MAY_INCLUDE_NATIVE = {
    "script": set(),
    "gpu": set(),
    "hardware": {"gpu"},
    "emulator": {"gpu"},
    "emulated": {"emulator", "gpu", "module"},
    "module": {"script", "gpu", "emulator"},
}
OVERLAY = NATIVE / "emulator" / "overlay"
# The one file that names the devices.
MAKES_BACKENDS = {"backend/make_backend.cpp": {"backend/cpu", "backend/cuda"}}

# Folder of the package -> folders and external modules that it may import.
MAY_IMPORT = {
    "api": {"api"},
    "process": {"process"},
    # Of the core, it imports the encoders of vocabularies.
    "text": {"text", "process", "api", "_core"},
    # Of the text layer, it imports the errors.
    "media": {"media", "process", "text", "config"},
    "tables": {"tables", "_core"},
    "config": {"config", "tables"},
    "models": {"models"},
    "core": {"core", "api", "tables", "config", "models", "_core"},
    "generation": {"generation", "api", "tables", "core", "text", "media", "config", "models"},
    # Of the core, these two import the type of its numbers.
    "telemetry": {"telemetry", "api", "config", "_core"},
    "serving": {"serving", "api", "telemetry", "generation", "core", "text", "media", "config", "tables", "_core"},
    "pb": {"pb"},
    "client": {"client", "api", "pb"},
    "deploy": {"deploy", "core", "config"},
    "rpc": {"rpc", "api", "pb", "serving", "telemetry", "generation", "core", "text", "media", "config", "tables"},
    "http_api": {"http_api", "api", "serving", "telemetry", "generation", "core", "text", "media", "config", "tables"},
    # It holds connections, and has no model: neither the engine, nor texts, nor generations.
    "front": {"front", "http_api", "serving", "telemetry", "config", "process", "api"},
    "server": {"server", "rpc", "http_api", "serving", "generation", "core", "config"},
    "library": {"library", "api", "cli", "generation", "config"},
    "ray_app": {"ray_app", "rpc", "http_api", "pb", "serving", "config"},
    "cli": {
        "cli",
        "front",
        "api",
        "server",
        "client",
        "deploy",
        "pb",
        "serving",
        "telemetry",
        "generation",
        "core",
        "media",
        "text",
        "config",
        "models",
        "tables",
    },
}
# The folders that `imp-client` packs; they import each other relatively.
PACKED = {"api", "client", "pb"}
# External packages that only some folders or files may import.
ONLY_IN = {
    "grpc": {"rpc", "client", "pb", "cli", "ray_app"},
    "google": {"rpc", "client", "pb", "cli", "ray_app", "text/directory/sentencepiece_model.py"},
    "aiohttp": {
        "http_api/listener.py",
        "client/bench/openai_api.py",
        "front/relay/connections.py",
        "front/relay/call.py",
    },
    "numpy": {"cli", "generation", "rpc", "text"},
    "ray": {"ray_app"},
    "starlette": {"ray_app"},
    "smg_grpc_proto": {"rpc/vllm/engine.py", "rpc/vllm/replies.py"},
    "prometheus_client": {"telemetry"},
    "opentelemetry": {"telemetry"},
    "yaml": {"deploy"},
    "huggingface_hub": {"cli"},
    "prompt_toolkit": {"cli"},
    "shtab": {"cli"},
    "PIL": {"media/worker.py"},
    "torch": set(),
    "transformers": set(),
}


def room_of(path: str) -> str:
    """Returns the folder of a file of csrc, or the nearest one above it that has a row in MAY_INCLUDE."""
    folder = path.rpartition("/")[0]
    while folder and folder not in MAY_INCLUDE:
        folder = folder.rpartition("/")[0]
    return folder


def include_violations(path: str, text: str) -> list[str]:
    """Returns the includes of csrc/`path` that the table does not allow."""
    room = room_of(path)
    allowed = MAY_INCLUDE[room] | MAKES_BACKENDS.get(path, set())
    found = []
    for target in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
        other = room_of(target)
        if other != room and other not in allowed:
            found.append(f"csrc/{path} includes {target}: {room} may not see {other}")
    return found


def absolute(node: ast.ImportFrom, path: str) -> str:
    """Returns the module that an import in imp_service/`path` names."""
    package = ["imp_service", *path.split("/")[:-1]]
    above = package[: len(package) - node.level + 1] if node.level else []
    return ".".join([*above, *([node.module] if node.module else [])])


def is_relative(node: ast.ImportFrom, room: str) -> bool:
    """Returns whether an import of imp_service is in a folder that `imp-client` packs; only those are relative."""
    return room in PACKED and (node.level > 0 or (node.module or "").startswith("imp_service"))


def import_violations(path: str, text: str) -> list[str]:
    """Returns the imports of imp_service/`path` that the table does not allow."""
    room = path.split("/", maxsplit=1)[0] if "/" in path else ""
    found = []
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert (node.level > 0) == is_relative(node, room), f"{path}: {ast.unparse(node)}"
            module = absolute(node, path)
            names = [f"{module}.{alias.name}" for alias in node.names] if module == "imp_service" else [module]
        for name in names:
            top, *rest = name.split(".")
            if not {room, path} & ONLY_IN.get(top, {room}):
                found.append(f"imp_service/{path} imports {name}")
            if top == "imp_service" and room and rest and rest[0] not in MAY_IMPORT[room]:
                known_root_value = rest[0].startswith("__")
                if not known_root_value:
                    found.append(f"imp_service/{path} imports {name}: {room} may not see {rest[0]}")
    return found


def native_violations(path: str, text: str) -> list[str]:
    """Returns the includes of tests/native/`path` that the table does not allow."""
    room = path.split("/", maxsplit=1)[0]
    rooms = re.findall(r'^\s*#\s*include\s+"native/([^"/]+)/[^"]+"', text, re.MULTILINE)
    return [f"{path} includes native/{other}" for other in rooms if other not in {room} | MAY_INCLUDE_NATIVE[room]]


def knows_tests(text: str) -> list[str]:
    """Returns the places where the core mentions the build with tests or the emulated GPU."""
    return re.findall(r"IMP_TESTING|cuda_emulated|\bemulator\b|\bemu::|\bnative/", text)


def sources_below(folder: Path) -> list[Path]:
    return [p for p in sorted(folder.rglob("*")) if p.suffix in {".h", ".cpp", ".inl", ".cu", ".cuh"}]


def code_lines(text: str) -> int:
    """Returns the number of lines with code: no blank lines, comments and docstrings."""
    said = {
        line
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        for line in range(node.lineno, (node.end_lineno or 0) + 1)
    }
    lines = enumerate(text.splitlines(), 1)
    return sum(number not in said and line.strip()[:1] not in ("", "#") for number, line in lines)


def test_hon_16_the_relay_of_the_front_stays_small_and_loads_no_engine_and_no_supervision() -> None:
    relay = [path.read_text() for path in (PACKAGE / "front" / "relay").glob("*.py") if path.stem != "server"]
    n_lines = sum(map(code_lines, relay))
    # A front that grows a policy of routing has gone wrong.
    assert 700 < n_lines <= 1300
    assert code_lines('"""Said."""\n\n# Said.\nx = 1\n') == 1
    engine = ("imp_service.core", "imp_service.text", "imp_service.generation", "numpy", "tokenizers", "grpc")
    kept_out = (*engine, "imp_service.front.supervision")
    script = f"import sys, imp_service.front.relay.front; print([name for name in {kept_out} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


def test_hon_16_csrc_is_the_same_with_tests_and_without() -> None:
    files = [*sources_below(CSRC), *CSRC.rglob("CMakeLists.txt")]
    assert {str(p.relative_to(CSRC)): found for p in files if (found := knows_tests(p.read_text()))} == {}
    assert knows_tests("#if IMP_TESTING\n#endif\nemu::lane();") == ["IMP_TESTING", "emu::"]


def test_hon_16_the_emulator_takes_the_place_of_headers_that_csrc_has() -> None:
    replaced = [p.relative_to(OVERLAY) for p in OVERLAY.rglob("*") if p.is_file()]
    assert len(replaced) > 2
    assert [str(p) for p in replaced if not (CSRC / p).is_file() or p.parts[:2] != ("backend", "cuda")] == []


def test_hon_16_folders_of_the_native_tests_include_only_what_they_may() -> None:
    files = sources_below(NATIVE)
    assert len(files) > 20
    assert [v for p in files for v in native_violations(p.relative_to(NATIVE).as_posix(), p.read_text())] == []
    assert native_violations("script/script_model.cpp", '#include "native/module/base.h"') != []


def test_hon_16_csrc_rooms_include_only_what_they_may() -> None:
    files = sources_below(CSRC)
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
        ("backend/backend.h", '#include "backend/cpu/lanes/lanes.h"'),
        ("engine/step/step_executor.cpp", '#include "files/model_file.h"'),
        ("engine/speculation/speculation.cpp", '#include "engine/run/engine.h"'),
        ("engine/kv/kv_blocks.cpp", '#include "engine/sequence/sequence.h"'),
        ("model/decoder.cpp", '#include "engine/data/limits.h"'),
        ("model/layer/layer_body_attention.cpp", '#include "model/decoder.h"'),
        ("text/listed_merges.cpp", '#include "files/metadata.h"'),
        ("model/config/validate.cpp", '#include "model/arch/registry.h"'),
        ("bindings/module.cpp", '#include "native/script/script_model.h"'),
    ],
)
def test_hon_16_a_forbidden_include_is_found(path: str, line: str) -> None:
    assert len(include_violations(path, line)) == 1


@pytest.mark.parametrize(
    ("path", "line"),
    [
        ("text/tokenizer.py", "from imp_service.core import open_file"),
        ("text/tokenizer.py", "import grpc"),
        ("core/load.py", "from imp_service.cli import run"),
        ("config/schema.py", "from imp_service import core"),
        ("api/errors.py", "from ..core import errors"),
        ("api/errors.py", "import numpy"),
        ("client/target.py", "from ..serving.server_state import ServerState"),
        ("media/images.py", "from PIL import Image"),
        ("media/images.py", "from imp_service.core import open_file"),
        ("front/relay/front.py", "from imp_service.generation.runtime import ModelRuntime"),
        ("process/worker_process.py", "from imp_service.text.errors import TextError"),
    ],
)
def test_hon_16_a_forbidden_import_is_found(path: str, line: str) -> None:
    assert len(import_violations(path, line)) == 1
