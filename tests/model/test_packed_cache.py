"""Packed weights on disk: a start reads a valid file instead of the model, and works without one."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.kernels.bits import assert_same_bits
from support.models.forward_runs import Cache, prompt
from support.models.tiny_models import tiny

PIECE = 1 << 18
HEADER = 64


def write_model(folder: Path, kind: str = "llama", **changes: Any) -> Path:
    """Writes a model with more than one piece of weights, old enough that a later change also changes its times."""
    path = tiny(kind, vocab_size=1501, hidden_size=96, **changes).write(folder / "m.gguf")
    age(path)
    return path


def age(path: Path, seconds: int = 60) -> None:
    then = path.stat().st_mtime_ns - seconds * 10**9
    os.utime(path, ns=(then, then))


def load(path: Path, cache: Path | None, *, threads: int = 2, **overrides: Any) -> Any:
    changed = _core.ModelOverrides()
    for name, value in overrides.items():
        setattr(changed, name, value)
    return _core.Model.load(
        _core.open_model_file(path), overrides=changed, threads=threads, max_rows=64, max_logits_rows=64,
        kv_bytes=1 << 20, packed_cache=cache,
    )  # fmt: skip


def logits(model: Any) -> Any:
    return Cache(model).prefill(prompt(9, model.vocab_size))


def goes_on() -> bool:
    return True


def written(path: Path, cache: Path) -> Path:
    """Returns the packed file that a start without one writes."""
    model = load(path, cache)
    assert not model.packed["was_read"]
    assert model.write_packed(goes_on)
    return Path(model.packed["path"])


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cache"


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", ["llama", "qwen3", "qwen3moe", "gemma3"])
@pytest.mark.parametrize("threads", [1, 3])
def test_mod_23_what_was_packed_is_read_back_bit_for_bit(kind: str, threads: int, tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path, kind)
    file = written(path, cache)
    assert file.parent == cache
    assert [each.name for each in cache.iterdir()] == [file.name]
    assert file.stat().st_mode & 0o777 == 0o600
    told: list[tuple[int, int]] = []
    model = _core.Model.load(
        _core.open_model_file(path), threads=threads, max_rows=64, max_logits_rows=64, kv_bytes=1 << 20,
        packed_cache=cache, progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert model.packed == {"path": str(file), "was_read": True, "why": ""}
    assert told[-1][0] == told[-1][1]
    assert told == sorted(told)
    assert_same_bits(logits(model), logits(load(path, None)))


def bytes_read() -> int:
    """Returns the bytes that this process has read, from any file."""
    words = Path("/proc/self/io").read_text().split()
    return int(words[words.index("rchar:") + 1])


def test_mod_23_gemm_12_the_models_matrices_are_not_read_again(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path)
    file = written(path, cache)
    opened = _core.open_model_file(path)
    matrices = sum(tensor.n_bytes for tensor in opened.tensors if len(tensor.shape) == 2)
    vectors = sum(tensor.n_bytes for tensor in opened.tensors if len(tensor.shape) == 1)

    def read_by(packed: Path | None) -> int:
        before = bytes_read()
        _core.Model.load(opened, kv_bytes=1 << 20, packed_cache=packed)
        return bytes_read() - before

    other = 8192  # reads of /proc and /sys
    assert matrices > 10 * other
    assert file.stat().st_size <= read_by(cache) + 64 * len(opened.tensors) <= file.stat().st_size + vectors + other
    assert matrices + vectors <= read_by(None) <= matrices + vectors + other


def flip(at: int) -> Callable[[bytearray], None]:
    def change(content: bytearray) -> None:
        content[at] ^= 1

    return change


def swap_pieces(content: bytearray) -> None:
    begin = parts_begin(content)
    middle, end = begin + PIECE, begin + 2 * PIECE
    content[begin:middle], content[middle:end] = content[middle:end], content[begin:middle]


DAMAGES: dict[str, tuple[Callable[[bytearray], Any], str]] = {
    "magic": (flip(0), "is not a file of packed weights"),
    "version": (flip(8), "made from another model, or by another version"),
    "key's length": (flip(16), "made from another model, or by another version"),
    "pieces": (flip(24), "made from another model, or by another version"),
    "begin": (flip(32), "made from another model, or by another version"),
    "length": (flip(45), "made from another model, or by another version"),
    "sum": (flip(50), "its header is damaged"),
    "key": (flip(HEADER + 40), "its header is damaged"),
    "first of the weights": (lambda content: flip(parts_begin(content))(content), "is damaged at byte "),
    "last of the weights": (flip(-200), "is damaged at byte "),
    "pieces swapped": (swap_pieces, "is damaged at byte "),
    "end": (lambda content: content.__delitem__(slice(-1, None)), " bytes, expected "),
    "half": (lambda content: content.__delitem__(slice(len(content) // 2, None)), " bytes, expected "),
    "header cut": (lambda content: content.__delitem__(slice(40, None)), "has no header"),
    "emptied": (lambda content: content.clear(), "has no header"),
    "more": (lambda content: content.append(0), " bytes, expected "),
    "zeros": (lambda content: content.__setitem__(slice(None), bytes(len(content))), "is not a file of packed weights"),
}


def parts_begin(content: bytearray) -> int:
    return int.from_bytes(content[32:40], "little")


@pytest.mark.few(5)
@pytest.mark.parametrize("damage", DAMAGES)
def test_mod_23_a_damaged_file_is_not_used_and_written_anew(damage: str, tmp_path: Path, cache: Path) -> None:
    change, why = DAMAGES[damage]
    path = write_model(tmp_path)
    file = written(path, cache)
    whole = file.read_bytes()
    content = bytearray(whole)
    change(content)
    file.write_bytes(content)
    model = load(path, cache)
    assert not model.packed["was_read"]
    assert model.packed["why"].startswith(f"{file.name}: ")
    assert why in model.packed["why"]
    assert_same_bits(logits(model), logits(load(path, None)))
    assert model.write_packed(goes_on)
    assert file.read_bytes() == whole
    assert load(path, cache).packed["was_read"]


def as_link(file: Path) -> None:
    shutil.move(file, file.with_suffix(".moved"))
    file.symlink_to(file.with_suffix(".moved"))


def as_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def as_pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


@pytest.mark.parametrize(
    ("replace", "why"),
    [
        (lambda file: file.unlink(), "No such file"),
        (lambda file: file.chmod(0o602), "everybody may write it"),
        (as_link, "symbolic links"),
        (as_folder, "is a directory"),
        (as_pipe, "is a pipe"),
    ],
)
def test_mod_23_what_is_no_file_of_ours_is_not_used(
    replace: Callable[[Path], Any], why: str, tmp_path: Path, cache: Path
) -> None:
    path = write_model(tmp_path)
    file = written(path, cache)
    replace(file)
    model = load(path, cache)
    assert not model.packed["was_read"]
    assert why in model.packed["why"]
    assert_same_bits(logits(model), logits(load(path, None)))


def test_mod_23_another_model_in_the_same_place_is_not_mistaken_for_it(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path)
    file = written(path, cache)
    stat = path.stat()
    content = bytearray(path.read_bytes())
    content[-100] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # the times do not show the change
    model = load(path, cache)
    assert not model.packed["was_read"]
    assert "made from another model" in model.packed["why"]
    assert_same_bits(logits(model), logits(load(path, None)))
    assert model.write_packed(goes_on)
    assert model.packed["path"] == str(file)
    assert load(path, cache).packed["was_read"]


def test_mod_23_each_plan_has_a_file_of_its_own(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path)
    file = written(path, cache)
    plain = load(path, cache, gemm=[("f32", "reference")])
    assert not plain.packed["was_read"]
    assert plain.packed["path"] != str(file)
    assert plain.write_packed(goes_on)
    assert load(path, cache).packed["was_read"]
    assert load(path, cache, gemm=[("f32", "reference")]).packed["was_read"]


def test_mod_23_a_model_that_was_just_changed_is_not_written_yet(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path)
    os.utime(path)
    model = load(path, cache)
    with pytest.raises(_core.ModelError, match="modified a moment before it was read") as caught:
        model.write_packed(goes_on)
    assert caught.value.reason == "MODEL_IO"
    assert not cache.exists()


def test_mod_23_a_write_can_be_broken_off(tmp_path: Path, cache: Path) -> None:
    model = load(write_model(tmp_path), cache)
    assert not model.write_packed(lambda: False)
    assert list(cache.iterdir()) == []


def test_mod_23_a_full_disk_leaves_the_file_that_was_there(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path)
    file = written(path, cache)
    whole = file.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (PIECE, limits[1]))
    try:
        with pytest.raises(_core.ModelError, match="File too large") as caught:
            load(path, cache).write_packed(goes_on)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert caught.value.reason == "MODEL_IO"
    assert [each.name for each in cache.iterdir()] == [file.name]
    assert file.read_bytes() == whole


def test_mod_23_a_folder_that_cannot_be_is_said(tmp_path: Path) -> None:
    path = write_model(tmp_path)
    taken = tmp_path / "taken"
    taken.write_text("a file")
    model = load(path, taken)
    assert "Not a directory" in model.packed["why"]
    with pytest.raises(_core.ModelError, match="Not a directory"):
        model.write_packed(goes_on)


def test_mod_23_one_process_writes_at_a_time_and_takes_over_what_a_dead_one_left(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path)
    model = load(path, cache)
    cache.mkdir(parents=True)
    partial = Path(model.packed["path"] + ".partial")
    with partial.open("wb") as other:
        other.write(b"left over" * PIECE)
        other.flush()
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(_core.ModelError, match="another process writes it"):
            model.write_packed(goes_on)
        assert partial.exists()
    assert model.write_packed(goes_on)
    assert not partial.exists()
    assert load(path, cache).packed["was_read"]


def test_mod_23_progress_goes_back_where_damage_is_found_on_the_way(tmp_path: Path, cache: Path) -> None:
    path = write_model(tmp_path)
    file = written(path, cache)
    content = bytearray(file.read_bytes())
    content[-200] ^= 1
    file.write_bytes(content)
    told: list[tuple[int, int]] = []
    _core.Model.load(
        _core.open_model_file(path), kv_bytes=1 << 20, packed_cache=cache,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told[-1][0] == told[-1][1] == max(done for done, _ in told)
    assert all(done <= total for done, total in told)


def test_mod_23_nothing_is_kept_unless_asked_for(tmp_path: Path) -> None:
    model = load(write_model(tmp_path), None)
    assert model.packed is None
    with pytest.raises(_core.InvalidArgument, match="packed_cache: none was given"):
        model.write_packed(goes_on)
    assert np.isfinite(logits(model)).all()


def test_mod_23_a_device_with_memory_of_its_own_has_none(tmp_path: Path, cache: Path) -> None:
    """A GPU does not use the packed file that the CPU wrote for the same model."""
    path = write_model(tmp_path)
    file = written(path, cache)
    content = file.read_bytes()
    changed = _core.ModelOverrides()
    changed.unvalidated_kernels = True
    model = _core.Model.load(
        _core.open_model_file(path), overrides=changed, device="cuda_emulated", max_rows=8, max_logits_rows=8,
        kv_bytes=1 << 20, packed_cache=cache,
    )  # fmt: skip
    assert model.packed == {
        "path": None,
        "was_read": False,
        "why": "device cuda keeps its weights in its own memory",
    }
    with pytest.raises(_core.InvalidArgument, match="in its own memory"):
        model.write_packed(goes_on)
    assert [each.name for each in cache.iterdir()] == [file.name]
    assert file.read_bytes() == content
