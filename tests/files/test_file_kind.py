"""The content decides the format of a file, and the refusal of another format names it."""

from __future__ import annotations

import gzip
import io
import json
import pickle
import struct
import zipfile
from pathlib import Path

import pytest

from imp_service import _core
from support.gguf_writer import small_model
from support.refusals import assert_refused


def zip_bytes() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("archive/data.pkl", "x")
    return buffer.getvalue()


def safetensors_bytes() -> bytes:
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(4)


LFS = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"0" * 64 + b"\nsize 1\n"
KINDS = {
    "a ZIP archive": zip_bytes(),
    "a Python pickle": pickle.dumps({"weights": [1.0, 2.0]}),
    "a gzip archive": gzip.compress(b"weights"),
    "an HTML or XML page": b"\n <!DOCTYPE html><html><body>404 Not Found</body></html>",
    "an HTML or XML page, perhaps": b"<HTML><head></head></HTML>",
    "a Git LFS pointer": LFS,
    "a GGML file": b"lmgg" + bytes(60),
    "a GGUF file in reversed byte order": b"FUGG" + bytes(60),
    "zeros": bytes(4096),
    "no known format": b"just some text, long enough",
}


@pytest.mark.parametrize("description", KINDS)
def test_m56_files_of_another_kind_are_named(tmp_path: Path, description: str) -> None:
    for name in ["m.gguf", "model.bin"]:
        path = tmp_path / name
        path.write_bytes(KINDS[description])
        assert_refused(path, "MODEL_FORMAT", f"{name}: looks like {description}", opener=_core.open_model_file)


def test_m56_safetensors_named_gguf(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(safetensors_bytes())
    assert_refused(path, "MODEL_FORMAT", "m.gguf: ", opener=_core.open_model_file)


def test_mod_5_gguf_is_known_by_content_whatever_its_name(tmp_path: Path) -> None:
    for name in ["weights", "m.bin", "m.safetensors", "Ünïcode.gguf"]:
        assert _core.open_model_file(small_model().write(tmp_path / name)).format == "gguf"
