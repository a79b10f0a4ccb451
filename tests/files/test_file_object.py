"""Files as objects: special ones, unreadable ones, ones that change while they are read; the content is the format."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import socket
import struct
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.gguf_writer import STRING, TENSOR_TYPES, Gguf, Key, Tensor, array, small_model
from support.files.refusals import assert_refused, refusal
from support.run.release_run import IS_RELEASE

# The values of a damaged byte.
BYTES = range(256) if IS_RELEASE else (0x00, 0x7F, 0x80, 0xFF)


def open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def three_files() -> dict[str, Gguf]:
    """Returns files with many keys, every tensor type, and long strings; unpadded, so every prefix is incomplete."""
    every = [Tensor(f"t.{name}", (row[1] * 2,), name) for name, row in TENSOR_TYPES.items()]
    words = array("tokenizer.ggml.tokens", STRING, [f"word{i}" * (i % 5) for i in range(120)])
    return {
        "keys": small_model(pad_last=False),
        "types": Gguf(keys=[Key("general.architecture", STRING, "llama")], tensors=every, pad_last=False),
        "words": small_model(keys=[words, Key("s", STRING, "x" * 2000)], version=2, pad_last=False),
    }


def test_m46_what_is_no_file(tmp_path: Path) -> None:
    directory, pipe, address = tmp_path / "d.gguf", tmp_path / "p.gguf", tmp_path / "s.gguf"
    directory.mkdir()
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(address))
        for path, words in [
            (directory, "is a directory, expected a regular file"),
            (pipe, "is a pipe"),
            (Path("/dev/zero"), "is a device"),
            (Path("/dev/null"), "is a device"),
            (address, "s.gguf: "),
        ]:
            assert_refused(path, "MODEL_MISSING", words)
            assert_refused(path, "MODEL_MISSING", opener=_core.open_model_file)


def test_m47_what_is_not_there(tmp_path: Path) -> None:
    dangling, circular = tmp_path / "dangling.gguf", tmp_path / "circular.gguf"
    dangling.symlink_to(tmp_path / "nowhere.gguf")
    circular.symlink_to(circular)
    file = tmp_path / "file"
    file.touch()
    for path in [tmp_path / "absent.gguf", dangling, circular, file / "m.gguf", tmp_path / ("n" * 300)]:
        assert_refused(path, "MODEL_MISSING", path.name[:200])


def test_m47_what_may_not_be_read(tmp_path: Path) -> None:
    path = small_model().write(tmp_path / "m.gguf")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)  # root may read anything
    try:
        assert_refused(path, "MODEL_PERMISSION", "m.gguf: Permission denied")
    finally:
        os.seteuid(user)


def test_a_link_to_a_model_is_followed(tmp_path: Path) -> None:
    small_model().write(tmp_path / "m.gguf")
    (tmp_path / "link").symlink_to("m.gguf")
    assert len(_core.open_model_file(tmp_path / "link").tensors) == 4


def test_mod_2_m49_every_prefix(tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    n_prefixes = 0
    before = open_descriptors()
    for source in three_files().values():
        whole = source.write(path).stat().st_size
        assert core.open_gguf(path).warnings == []
        with path.open("r+b") as file:
            for n_bytes in range(whole - 1, -1, -1):
                file.truncate(n_bytes)
                try:
                    core.open_gguf(path)
                except _core.ModelError as error:
                    # A file that ends in the table is truncated; one that ends in the data has a tensor beyond its end.
                    assert error.reason in {"MODEL_TRUNCATED", "MODEL_OFFSET"}
                else:
                    pytest.fail(f"the first {n_bytes} of {whole} bytes were accepted")
                n_prefixes += 1
    assert n_prefixes >= 10_000
    assert open_descriptors() == before


def test_m50_every_metadata_byte_set_to_extremes(tmp_path: Path) -> None:
    """Each file is either refused with a typed error or read to its end. The release run sets every value."""
    source = small_model()
    header_bytes = len(source.header())
    whole = source.encode()
    path = source.write(tmp_path / "m.gguf")
    outcomes = {"refused": 0, "read": 0}
    with path.open("r+b", buffering=0) as file:
        for place in range(header_bytes):
            for value in BYTES:
                os.pwrite(file.fileno(), bytes([value]), place)
                try:
                    model = core.open_gguf(path)
                except _core.ModelError:
                    outcomes["refused"] += 1
                else:
                    model.check(values=True)
                    outcomes["read"] += 1
            os.pwrite(file.fileno(), whole[place : place + 1], place)
    assert outcomes["refused"] + outcomes["read"] == len(BYTES) * header_bytes
    assert outcomes["refused"] > header_bytes
    assert outcomes["read"] > header_bytes // 2  # values of keys that this test does not check
    assert len(core.open_gguf(path).tensors) == 4


def load(path: Path, faults: core.FaultyReads) -> list[tuple[str, bytes]]:
    model = core.open_gguf(path, faults)
    return [(tensor.name, core.read_tensor(model, tensor.name)) for tensor in model.tensors]


def test_m51_an_error_at_every_read_in_turn(tmp_path: Path) -> None:
    path = small_model().write(tmp_path / "m.gguf")
    clean = core.FaultyReads("none", 0)
    load(path, clean)
    assert clean.n_reads == 5  # the metadata, and each tensor
    for nth in range(1, clean.n_reads + 1):
        for action, words in [("eio", "Input/output error"), ("end", "when it was opened")]:
            error = refusal(path, lambda p, a=action, n=nth: load(p, core.FaultyReads(a, n)))
            assert error.reason == "MODEL_IO"
            assert words in error.message


@pytest.mark.parametrize("action", ["short", "eintr"])
def test_m51_short_and_interrupted_reads_change_nothing(tmp_path: Path, action: str) -> None:
    path = small_model().write(tmp_path / "m.gguf")
    expected = load(path, core.FaultyReads("none", 0))
    faults = core.FaultyReads(action, 0)
    assert load(path, faults) == expected
    n_tensor_bytes = sum(len(data) for _, data in expected)
    # The reads go byte by byte through the file and again through the tensors, or each of five reads runs twice.
    assert faults.n_reads == (path.stat().st_size + n_tensor_bytes if action == "short" else 10)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 40)


def overwrite(path: Path) -> None:
    before = path.stat().st_mtime_ns
    path.write_bytes(path.read_bytes()[:-64] + bytes(64))
    os.utime(path, ns=(before, before + 1))  # the clock of a file system may be too coarse for this test


def append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"more")


@pytest.mark.parametrize("change", [truncate, overwrite, append])
def test_mod_22_m52_a_file_that_changes_while_it_is_read(tmp_path: Path, change: Callable[[Path], None]) -> None:
    path = small_model().write(tmp_path / "m.gguf")
    model = core.open_gguf(path)
    core.read_tensor(model, "token_embd.weight")
    change(path)
    for tensor in model.tensors:
        error = refusal(path, lambda _, name=tensor.name: core.read_tensor(model, name))
        assert error.reason == "MODEL_IO"


def unlink(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(bytes(5))
    other.replace(path)


@pytest.mark.parametrize("change", [unlink, replace])
def test_mod_22_m52_a_file_that_is_replaced_is_read_whole_as_it_was(
    tmp_path: Path, change: Callable[[Path], None]
) -> None:
    source = small_model()
    model = core.open_gguf(source.write(tmp_path / "m.gguf"))
    change(tmp_path / "m.gguf")
    for tensor, written in zip(model.tensors, source.tensors, strict=True):
        assert core.read_tensor(model, tensor.name) == written.payload()


def test_descriptors_are_closed(tmp_path: Path) -> None:
    path = small_model().write(tmp_path / "m.gguf")
    before = open_descriptors()
    models = [core.open_gguf(path) for _ in range(3)]
    assert open_descriptors() == before + 3
    models.clear()
    assert open_descriptors() == before


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
