"""Sets of GGUF files: read as one model, or refused where the shards disagree."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.gguf_writer import I32, STRING, U16, Gguf, Key, Tensor
from support.files.refusals import assert_refused

TENSORS = [Tensor("a", (8, 3)), Tensor("b", (64, 2), "q8_0"), Tensor("c", (5,), "f16")]


def shard_set(count: int = 3, n_tensors: int = 3) -> list[Gguf]:
    shards = []
    for number, tensor in enumerate(TENSORS):
        split = [Key("split.no", U16, number), Key("split.count", U16, count)]
        total = [Key("split.tensors.count", I32, n_tensors)]
        first = [Key("general.architecture", STRING, "llama")] if number == 0 else []
        shards.append(Gguf(keys=[*first, *split, *total], tensors=[tensor]))
    return shards


def write(directory: Path, shards: list[Gguf]) -> Path:
    for number, shard in enumerate(shards):
        shard.write(directory / f"m-{number + 1:05}-of-00003.gguf")
    return directory / "m-00001-of-00003.gguf"


def test_m57_control_a_set_is_read_as_one(tmp_path: Path) -> None:
    model = _core.open_model_file(write(tmp_path, shard_set()))
    assert [(t.name, t.shard, t.dtype) for t in model.tensors] == [("a", 0, "f32"), ("b", 1, "q8_0"), ("c", 2, "f16")]
    for tensor in TENSORS:
        assert core.read_tensor(model, str(tensor.name)) == tensor.payload()
    assert model.metadata["general.architecture"] == "llama"


def test_a_set_that_the_gguf_package_wrote(tmp_path: Path) -> None:
    writer = gguf.GGUFWriter(tmp_path / "w.gguf", "llama", split_max_tensors=2)
    arrays = {name: np.arange(20, dtype=np.float32).reshape(4, 5) * (i + 1) for i, name in enumerate("abcde")}
    for name, values in arrays.items():
        writer.add_tensor(name, values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    model = _core.open_model_file(tmp_path / "w-00001-of-00003.gguf")
    assert [tensor.shard for tensor in model.tensors] == [0, 0, 1, 1, 2]
    for name, values in arrays.items():
        assert core.read_tensor(model, name) == values.tobytes()


def with_key(number: int, key: Key) -> list[Gguf]:
    shards = shard_set()
    shards[number].keys = [k for k in shards[number].keys if k.name != key.name] + [key]
    return shards


def tensor_twice() -> list[Gguf]:
    shards = shard_set(n_tensors=4)
    shards[2].tensors.append(TENSORS[0])
    return shards


def not_split() -> list[Gguf]:
    shards = shard_set()
    shards[1].keys = []
    return shards


@pytest.mark.parametrize(
    ("shards", "words"),
    [
        (with_key(0, Key("split.count", U16, 0)), "split.count: 0 shards"),
        (with_key(0, Key("split.count", U16, 65_535)), "expected a name that ends in -00001-of-65535.gguf"),
        (shard_set(count=4), "expected a name that ends in -00001-of-00004.gguf"),
        (with_key(1, Key("split.no", U16, 2)), "is shard 2 of 3"),
        (with_key(2, Key("split.no", U16, 1)), "is shard 1 of 3"),
        (with_key(0, Key("split.no", U16, 1)), "is shard 1 of 3 (counted from 0), expected 0"),
        (with_key(2, Key("split.count", U16, 4)), "split.count: differs"),
        (with_key(1, Key("split.tensors.count", I32, 5)), "split.tensors.count: differs"),
        (with_key(1, Key("general.architecture", STRING, "gemma")), "general.architecture: differs"),
        (shard_set(n_tensors=4), "the shards have 3 tensors, expected 4"),
        (shard_set(n_tensors=2), "the shards have 3 tensors, expected 2"),
        (tensor_twice(), "tensor a: occurs twice"),
        (not_split(), "m-00002-of-00003.gguf: has no key split.count"),
    ],
)
def test_m57_shards_that_disagree(tmp_path: Path, shards: list[Gguf], words: str) -> None:
    assert_refused(write(tmp_path, shards), "MODEL_SHARD", words, opener=_core.open_model_file)


def test_m57_shard_missing(tmp_path: Path) -> None:
    path = write(tmp_path, shard_set())
    (tmp_path / "m-00002-of-00003.gguf").unlink()
    assert_refused(path, "MODEL_SHARD", 'shard "m-00002-of-00003.gguf"', "No such file")


def test_m57_a_shard_that_is_not_the_first(tmp_path: Path) -> None:
    write(tmp_path, shard_set())
    assert_refused(tmp_path / "m-00002-of-00003.gguf", "MODEL_SHARD", "is shard 1 of 3 (counted from 0), expected 0")


def linked_out(path: Path, elsewhere: Path) -> None:
    shard = path.with_name("m-00002-of-00003.gguf")
    shard.rename(elsewhere / shard.name)
    shard.symlink_to(elsewhere / shard.name)


def linked_to_parent(path: Path, elsewhere: Path) -> None:
    linked_out(path, elsewhere)
    path.with_name("m-00002-of-00003.gguf").unlink()
    path.with_name("m-00002-of-00003.gguf").symlink_to(f"../{elsewhere.name}/m-00002-of-00003.gguf")


@pytest.mark.parametrize("link", [linked_out, linked_to_parent])
def test_m58_shard_that_is_a_link_out_of_the_directory(tmp_path: Path, link: Callable[[Path, Path], None]) -> None:
    directory, elsewhere = tmp_path / "model", tmp_path / "elsewhere"
    directory.mkdir()
    elsewhere.mkdir()
    path = write(directory, shard_set())
    link(path, elsewhere)
    reads = core.FaultyReads("none", 0)
    assert_refused(path, "MODEL_SHARD", "is a link out of", opener=lambda p: core.open_gguf(p, reads))
    assert reads.n_reads == 1  # the first shard alone


def test_m58_links_within_a_download_cache(tmp_path: Path) -> None:
    """Every file of the set is a link into one directory, including the first; that directory is the model's."""
    snapshot, blobs = tmp_path / "snapshot", tmp_path / "blobs"
    snapshot.mkdir()
    blobs.mkdir()
    path = write(snapshot, shard_set())
    for number in [1, 2, 3]:
        shard = snapshot / f"m-{number:05}-of-00003.gguf"
        shard.rename(blobs / f"hash{number}")
        shard.symlink_to(f"../blobs/hash{number}")
    assert len(_core.open_model_file(path).tensors) == 3
