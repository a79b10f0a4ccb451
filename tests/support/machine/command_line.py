"""Environments and model files for tests of the command line."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from pathlib import Path

import imp_service
from imp_service.models import demo_model_path
from support.files.gguf_writer import STRING, Key, string

# The folder of the package under test; subprocesses must import the same package.
FOUND_IN = Path(imp_service.__file__).parents[1]


def clean_environment(home: Path) -> dict[str, str]:
    """Returns this process's environment without settings of imp, with `home` as the home directory."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("IMP_")}
    return {**kept, "HOME": str(home), "PYTHONPATH": str(FOUND_IN)}


def error_lines(stderr: str) -> list[str]:
    """Returns the error lines of a command. After USAGE, a line follows that names the help."""
    return [line for line in stderr.splitlines() if line.startswith("imp: error: ")]


def modules_after(words: list[str], home: Path) -> set[str]:
    """Returns the modules that a subprocess has imported after running `imp` with these words."""
    code = f"import sys\nfrom imp_service.cli.shell import main\nmain({words!r})\nprint('LOADED', *sorted(sys.modules))"
    ran = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=home,
        env=clean_environment(home),
        check=True,
    )
    return set(ran.stdout.rpartition("LOADED ")[2].split())


def demo_with(path: Path, old: bytes, new: bytes) -> Path:
    """Writes a copy of the built-in model that has `new`, of the same length, in place of the only `old`."""
    content = demo_model_path().read_bytes()
    assert content.count(old) == 1 and len(old) == len(new)
    path.write_bytes(content.replace(old, new))
    return path


def demo_with_keys(path: Path, *keys: Key, without: str = "") -> Path:
    """Writes a copy of the built-in model with these additional keys in its metadata, and one of its own renamed."""
    alignment, header = 32, struct.Struct("<4sIQQ")
    added = b"".join(key.encode() for key in keys)
    padding = Key("test.padding", STRING, "")
    padding.value = "-" * (-(len(added) + len(padding.encode())) % alignment)  # so that the data stays aligned
    content = demo_model_path().read_bytes()
    if without:
        assert content.count(string(without)) == 1
        content = content.replace(string(without), string("x" * len(without)))
    magic, version, n_tensors, n_keys = header.unpack_from(content)
    start = header.pack(magic, version, n_tensors, n_keys + len(keys) + 1)
    path.write_bytes(start + added + padding.encode() + content[header.size :])
    return path
