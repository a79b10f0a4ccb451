"""Sharded safetensors, the configuration next to them, and which files of a directory are opened."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.gguf_writer import small_model
from support.files.refusals import assert_refused
from support.files.safetensors_writer import entry, write, write_set

IN_OPEN, IN_ISDIR = 0x20, 0x40000000
EVENT = struct.Struct("iIII")  # watch, mask, cookie, length of the name that follows


@contextlib.contextmanager
def opened_files(directory: Path) -> Iterator[list[str]]:
    """Fills the list at the end of the block with the files in `directory` that were opened during the block."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor = libc.inotify_init1(os.O_NONBLOCK)
    assert descriptor >= 0
    assert libc.inotify_add_watch(descriptor, os.fsencode(directory), IN_OPEN) >= 0
    names: list[str] = []
    try:
        yield names
        with contextlib.suppress(BlockingIOError):
            while True:
                names += parse(os.read(descriptor, 65536))
    finally:
        os.close(descriptor)


def parse(events: bytes) -> Iterator[str]:
    place = 0
    while place < len(events):
        _, mask, _, n_bytes = EVENT.unpack_from(events, place)
        name = events[place + EVENT.size : place + EVENT.size + n_bytes].rstrip(b"\0")
        place += EVENT.size + n_bytes
        if not mask & IN_ISDIR:
            yield os.fsdecode(name)


SHARDS = {"a": "m-1.safetensors", "b": "m-1.safetensors", "c": "m-2.safetensors"}


def refused(path: Path, reason: str, *words: str) -> None:
    assert_refused(path, reason, *words, opener=_core.open_model_file)


def set_with(directory: Path, weight_map: Any) -> Path:
    index = write_set(directory)
    index.write_text(json.dumps({"weight_map": weight_map}))
    return index


def test_mod_4_a_set_is_read_as_one(tmp_path: Path) -> None:
    index = write_set(tmp_path)
    for path in [index, tmp_path]:
        model = _core.open_model_file(path)
        assert [(t.name, t.shard, t.shape) for t in model.tensors] == [("a", 0, (3,)), ("b", 0, (2,)), ("c", 1, (5,))]
        assert core.read_tensor(model, "b") == bytes(range(12, 16))
        assert core.read_tensor(model, "c") == bytes(range(50, 60))
        assert model.metadata["hidden_size"] == 64


@pytest.mark.long
def test_mod_4_m75_a_set_has_more_tensors_than_a_file(tmp_path: Path) -> None:
    """Seventy thousand tensors in two files, as in models with many experts."""
    names: dict[str, str] = {}
    for shard in ("m-1.safetensors", "m-2.safetensors"):
        here = [f"{shard}.{i}" for i in range(35_000)]
        write(tmp_path / shard, {name: entry("F32", [0], 0, 0) for name in here}, b"")
        names |= dict.fromkeys(here, shard)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": names}))
    (tmp_path / "config.json").write_text("{}")
    assert len(_core.open_model_file(index).tensors) == 70_000
    index.write_text(json.dumps({"weight_map": {str(i): "m-1.safetensors" for i in range(2**18 + 1)}}))
    refused(index, "MODEL_LIMIT", "more than 262144 tensors")


@pytest.mark.parametrize(
    "name",
    [
        "../../etc/passwd",
        "/etc/passwd",
        "a/b.safetensors",
        "x\0.safetensors",
        "..",
        ".",
        "",
        "../model/m-2.safetensors",
    ],
)
def test_m73_names_that_leave_the_directory(tmp_path: Path, name: str) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    index = set_with(directory, {**SHARDS, "c": name})
    with opened_files(directory) as opened:
        refused(index, "MODEL_SHARD", "expected a file name")
    assert opened == [index.name]


def test_m73_link_out_of_the_directory(tmp_path: Path) -> None:
    directory = tmp_path / "model"
    directory.mkdir()
    index = write_set(directory)
    (directory / "m-2.safetensors").rename(tmp_path / "m-2.safetensors")
    (directory / "m-2.safetensors").symlink_to("../m-2.safetensors")
    refused(index, "MODEL_SHARD", "is a link out of the model's directory")


def test_m74_shards_that_disagree(tmp_path: Path) -> None:
    index = set_with(tmp_path, {**SHARDS, "c": "m-3.safetensors"})
    refused(index, "MODEL_SHARD", 'shard "m-3.safetensors": No such file')
    index = set_with(tmp_path, {**SHARDS, "a": "m-2.safetensors"})
    refused(index, "MODEL_SHARD", "m-1.safetensors: tensor a: is in this file")
    index = set_with(tmp_path, {"a": "m-1.safetensors", "c": "m-2.safetensors"})
    refused(index, "MODEL_SHARD", "m-1.safetensors: tensor b: is in this file")
    index = set_with(tmp_path, {**SHARDS, "d": "m-2.safetensors"})
    refused(index, "MODEL_SHARD", "m-2.safetensors: tensor d: is missing")
    index = write_set(tmp_path)
    write(tmp_path / "m-2.safetensors", {"c": entry("BF16", [5], 0, 10), "a": entry("F32", [3], 10, 22)}, bytes(22))
    refused(index, "MODEL_SHARD", "m-2.safetensors: tensor a: is in this file")


@pytest.mark.parametrize(
    "text",
    ["[]", "{}", '{"weight_map": {}}', '{"weight_map": []}', '{"weight_map": {"a": 1}}', '{"weight_map": {"a": null}}',
     '{"weight_map": {"a": "m-1.safetensors", "a": "m-1.safetensors"}}', '{"weight_map": {}, "weight_map": {}}',
     '{"weight_map": {"a": "m-1.safetensors"}', '{"weight_map": {"a": "m-1.safetensors"}} x', '{"metadata": {"a": }}'],
)  # fmt: skip
def test_m75_index_of_a_wrong_form(tmp_path: Path, text: str) -> None:
    index = write_set(tmp_path)
    index.write_text(text)
    if len(text) < 8:
        index.write_text(text.ljust(8))
    refused(index, "MODEL_SHARD", "model.safetensors.index.json: ")


def test_m75_index_above_the_limits(tmp_path: Path) -> None:
    index = write_set(tmp_path)
    with index.open("a") as file:
        file.truncate(32 * 2**20 + 1)
    refused(index, "MODEL_LIMIT", "has 33554433 bytes, limit 33554432")
    index.write_text('{"metadata":' + '{"a":' * 100_000)
    refused(index, "MODEL_LIMIT", "nested deeper than 8 levels")


def test_m76_config_of_a_wrong_form(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors")
    config = tmp_path / "config.json"
    good = config.read_text()
    for text in [
        good[:-1],
        good[:10],
        "",
        "[]",
        "3",
        "\ufeff" + good,
        good + "}",
        good.replace("64", "06"),
        "{'a': 1}",
    ]:
        config.write_text(text)
        refused(path, "MODEL_CONFIG", "config.json: byte ")
    config.unlink()
    refused(path, "MODEL_MISSING", "config.json: No such file")


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("-1", "hidden_size: -1, expected 0 to 18446744073709551615"),
        ("64.0", "hidden_size: has type f64, expected an integer type"),
        ("1e308", "hidden_size: has type f64"),
        ("18446744073709551616", "hidden_size: has type f64"),
        ('"64"', "hidden_size: has type string"),
        ("true", "hidden_size: has type bool"),
        ("[64]", "hidden_size: has type array of u64"),
        ("{}", "hidden_size: missing"),
        ("null", "hidden_size: missing"),
        ("NaN", "hidden_size: has type f64"),  # Python writes it, and some configurations have it in unused keys
        ("Infinity", "hidden_size: has type f64"),
        ("-Infinity", "hidden_size: has type f64"),
        ("Inf", '"hidden_size": expected a value'),
        ("-", '"hidden_size": expected a value'),
        ("1e999", '"hidden_size": number 1e999 out of range'),
        ("1.", '"hidden_size": expected a value'),
        (".5", '"hidden_size": expected a value'),
    ],
)
def test_m77_numbers_name_their_field(tmp_path: Path, value: str, words: str) -> None:
    path = write(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text('{"hidden_size": %s}' % value)  # noqa: UP031
    assert_refused(
        path, "MODEL_CONFIG", words, opener=lambda p: core.typed_value(core.open_model_file(p), "u64", "hidden_size")
    )


def test_m77_numbers_that_no_float_holds(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(
        '{"eps": 1e308, "list": [1, 2.5, 3e39], "limits": [0.0, Infinity], "most": Infinity, "least": -Infinity}'
    )
    model = core.open_model_file(path)
    for kind, key in [
        ("number", "eps"),
        ("numbers", "list"),
        ("numbers", "limits"),
        ("number", "most"),
        ("number", "least"),
    ]:
        with pytest.raises(_core.ModelError, match="expected a number within f32") as raised:
            core.typed_value(model, kind, key)
        assert raised.value.reason == "MODEL_CONFIG"


def test_config_under_dotted_keys(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors", {"t": entry("F32", [1], 0, 4)}, bytes(4))
    config = {
        "text": "Grüße",
        "outer": {"inner": {"x": 1}, "y": -2, "empty": {}},
        "integers": [1, 2, 3],
        "signed": [1, -2],
        "numbers": [1, 2.5],
        "flags": [True, False],
        "words": ["a", "", "ü"],
        "mixed": [1, "a", None],
        "objects": [{"a": 1}, 5, [6, 7]],
        "none": None,
        "nothing": [],
        "big": 2**64 - 1,
        "theta": 1e6,
    }
    (tmp_path / "config.json").write_text(json.dumps(config))
    metadata = _core.open_model_file(path).metadata
    plain = {key: value.tolist() if hasattr(value, "tolist") else value for key, value in metadata.items()}
    assert plain == {
        "text": "Grüße",
        "outer.inner.x": 1,
        "outer.y": -2,
        "outer.empty": [],
        "integers": [1, 2, 3],
        "signed": [1, -2],
        "numbers": [1.0, 2.5],
        "flags": [True, False],
        "words": [b"a", b"", "ü".encode()],
        "mixed.0": 1,
        "mixed.1": "a",
        "mixed.2": None,
        "objects.0.a": 1,
        "objects.1": 5,
        "objects.2": [6, 7],
        "none": None,
        "nothing": [],
        "big": 2**64 - 1,
        "theta": 1e6,
    }


def test_config_keys_do_not_multiply(tmp_path: Path) -> None:
    """Long outer names, repeated for many elements, would need far more memory than the file's size."""
    path = write(tmp_path / "model.safetensors")
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"k" * 2**20: [[i] for i in range(60_000)]}))
    refused(path, "MODEL_LIMIT", "names of more than 1024 bytes in all")
    config.write_text(json.dumps({"k": [[i] for i in range(70_000)]}))
    refused(path, "MODEL_LIMIT", "more than 65536 values")
    config.write_text('{"a":' * 100_000)
    refused(path, "MODEL_LIMIT", "nested deeper than 64 levels")
    config.write_text('{"a.b": 1, "a": {"b": 2}}')
    refused(path, "MODEL_CONFIG", "key a.b occurs twice")


def test_m46_m82_directories(tmp_path: Path) -> None:
    refused(tmp_path, "MODEL_MISSING", "is a directory without a model, expected safetensors files or one GGUF file")
    for name in ("consolidated.00.pth", "pytorch_model-00001-of-00002.bin", "pytorch_model.bin"):
        (tmp_path / name).write_bytes(b"PK\x03\x04" + bytes(100))
        found = f"has PyTorch's {name}, expected safetensors or GGUF: convert it with save_pretrained() of transformers"
        refused(tmp_path, "MODEL_FORMAT", found)
        refused(tmp_path / name, "MODEL_FORMAT", "expected GGUF or safetensors: convert it with save_pretrained() of")
        (tmp_path / name).unlink()
    small_model().write(tmp_path / "m.gguf")
    (tmp_path / "README.md").write_text("a model")
    found = _core.open_model_file(tmp_path)
    assert (found.format, found.path) == ("gguf", str(tmp_path / "m.gguf"))
    small_model().write(tmp_path / "n.gguf")
    refused(tmp_path, "MODEL_MISSING", "is a directory of 2 GGUF files, expected the name of one, such as m.gguf")
    (tmp_path / "n.gguf").unlink()
    write(tmp_path / "model.safetensors")
    refused(tmp_path, "MODEL_FORMAT", "name one of m.gguf and model.safetensors")
    (tmp_path / "m.gguf").unlink()
    assert _core.open_model_file(tmp_path).format == "safetensors"
    write(tmp_path / "consolidated.safetensors")
    assert _core.open_model_file(tmp_path).path == str(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").rename(tmp_path / "other.safetensors")
    refused(
        tmp_path,
        "MODEL_SHARD",
        "2 safetensors files, expected model.safetensors.index.json or model.safetensors with them",
    )
    (tmp_path / "consolidated.safetensors").unlink()
    assert _core.open_model_file(tmp_path).path == str(tmp_path / "other.safetensors")


def test_an_index_goes_before_other_forms_of_the_weights(tmp_path: Path) -> None:
    write_set(tmp_path)
    write(tmp_path / "consolidated.safetensors")
    write(tmp_path / "model.safetensors")
    assert _core.open_model_file(tmp_path).path == str(tmp_path / "model.safetensors.index.json")


def test_the_defaults_of_generations_are_read_beside_the_configuration(tmp_path: Path) -> None:
    path = write(tmp_path / "model.safetensors")
    assert not any(key.startswith("generation_config.") for key in _core.open_model_file(path).metadata)
    (tmp_path / "generation_config.json").write_text('{"eos_token_id": [2, 7], "temperature": 0.5}')
    metadata = _core.open_model_file(path).metadata
    assert metadata["generation_config.eos_token_id"].tolist() == [2, 7]
    assert metadata["generation_config.temperature"] == 0.5
    (tmp_path / "generation_config.json").write_text("[]")
    refused(path, "MODEL_CONFIG", "generation_config.json")


def test_mod_4_m79_the_list_of_files_opened(tmp_path: Path) -> None:
    """Weights, index and configuration are opened; code, pickles and other files are not."""
    write_set(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    config |= {"auto_map": {"AutoModel": "modeling_evil.Evil"}, "trust_remote_code": True}
    (tmp_path / "config.json").write_text(json.dumps(config))
    for name in ["modeling_evil.py", "pytorch_model.bin", "model.pkl", "conftest.py", "tokenizer.json"]:
        (tmp_path / name).write_text("raise SystemExit('opened')")
    with opened_files(tmp_path) as opened:
        _core.open_model_file(tmp_path).check()
    assert sorted(opened) == ["config.json", "m-1.safetensors", "m-2.safetensors", "model.safetensors.index.json"]
    with opened_files(tmp_path) as opened:  # the control: the watch detects the other files too
        (tmp_path / "model.pkl").read_bytes()
    assert opened == ["model.pkl"]
