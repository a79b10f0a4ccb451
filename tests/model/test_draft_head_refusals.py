"""Files of draft heads that are wrong: each is refused with what was found and what was expected."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from imp_service import _core
from support.files.gguf_contents import GgufContents, Tensor
from support.files.safetensors_writer import write_tensors
from support.kernels.devices import GPU_KINDS
from support.models.head_runs import load_path
from support.models.tiny_assistant import TinyAssistant, tiny_assistant
from support.models.tiny_heads import TinyEagle, TinyNextN
from support.models.tiny_models import tiny
from support.run.release_run import repetitions

MODEL = tiny("llama", n_layers=5)
EAGLE = TinyEagle(MODEL)
N_MUTANTS = repetitions(10_000, 2_000)
N_TABLE_BYTES = 9000

Tensors = dict[str, NDArray[Any]]


def with_tensor(name: str, values: NDArray[Any] | None) -> Callable[[Tensors], None]:
    def change(tensors: Tensors) -> None:
        tensors.pop(name)
        if values is not None:
            tensors[name] = values

    return change


def d2t(change: Callable[[NDArray[np.int64]], None]) -> Callable[[Tensors], None]:
    def changed(tensors: Tensors) -> None:
        change(tensors["d2t"])

    return changed


def far(offsets: NDArray[np.int64]) -> None:
    offsets[-1] = MODEL.vocab_size


def negative(offsets: NDArray[np.int64]) -> None:
    offsets[0] = -1


def twice(offsets: NDArray[np.int64]) -> None:
    offsets[3] = offsets[2] - 1


def second_layer(tensors: Tensors) -> None:
    tensors["layers.1.self_attn.q_proj.weight"] = np.zeros((64, 80), np.float32)


# By what is wrong: changes of the keys, a change of the tensors, reason and text of the refusal.
REFUSED: dict[str, tuple[dict[str, Any], Callable[[Tensors], None] | None, str, str]] = {
    "another hidden size": (
        {"hidden_size": 48}, None, "MODEL_CONFIG", "key hidden_size: 48, expected the model's hidden size 40"
    ),
    "another target": (
        {"target_hidden_size": 48}, None, "MODEL_CONFIG",
        "key target_hidden_size: 48, expected the model's hidden size 40",
    ),
    "two layers": ({"num_hidden_layers": 2}, None, "MODEL_UNSUPPORTED", "key num_hidden_layers: 2, expected 1"),
    "a second layer": (
        {}, second_layer, "MODEL_TENSOR", "layers.1.self_attn.q_proj.weight: a second layer, expected one layer"
    ),
    "no fuse": ({}, with_tensor("fc.weight", None), "MODEL_TENSOR", "fc.weight: missing, expected [120, 40]"),
    "narrow fuse": (
        {}, with_tensor("fc.weight", np.zeros((40, 80), np.float32)), "MODEL_TENSOR",
        "fc.weight: shape [80, 40], expected [120, 40]",
    ),
    "narrow q": (
        {}, with_tensor("midlayer.self_attn.q_proj.weight", np.zeros((64, 40), np.float32)), "MODEL_TENSOR",
        "midlayer.self_attn.q_proj.weight: shape [40, 64], expected [80, 64]",
    ),
    "no head": ({}, with_tensor("lm_head.weight", None), "MODEL_TENSOR", "lm_head.weight: missing, expected [40, 23]"),
    "no tokens": ({"draft_vocab_size": None}, None, "MODEL_CONFIG", "draft_vocab_size"),
    "too many tokens": (
        {"draft_vocab_size": 52}, None, "MODEL_CONFIG",
        "key draft_vocab_size: 52, expected at most the model's 51 tokens",
    ),
    "smaller vocabulary": (
        {"vocab_size": 50}, None, "MODEL_CONFIG", "key vocab_size: 50, expected at least the model's 51 tokens"
    ),
    "tap beyond the layers": (
        {"eagle_aux_hidden_state_layer_ids": [1, 2, 6]}, None, "MODEL_CONFIG",
        "key eagle_aux_hidden_state_layer_ids: 6, expected a layer of the model, which has 5",
    ),
    "two taps": (
        {"eagle_aux_hidden_state_layer_ids": [1, 2]}, None, "MODEL_CONFIG",
        "2 layers, expected three, in ascending order",
    ),
    "no ids": ({}, with_tensor("d2t", None), "MODEL_TENSOR", "d2t: missing, expected 23 integers of 64 bits"),
    "few ids": (
        {}, with_tensor("d2t", np.zeros(22, np.int64)), "MODEL_TENSOR",
        "d2t: 176 bytes of shape [22], expected 23 integers of 64 bits",
    ),
    "ids of another type": (
        {}, with_tensor("d2t", np.zeros(23, np.float32)), "MODEL_TENSOR", "expected 23 integers of 64 bits"
    ),
    "id beyond the tokens": ({}, d2t(far), "MODEL_TENSOR", "d2t: element 22 is 51, expected -22 to 28"),
    "negative id": ({}, d2t(negative), "MODEL_TENSOR", "d2t: element 0 is -1, expected 0 to 50"),
    "id twice": ({}, d2t(twice), "MODEL_TENSOR", "d2t: element 3 is"),
    "odd heads": ({"head_dim": 15}, None, "MODEL_CONFIG", "rope_dims: 15, expected even, at most the head's 15"),
    "kv heads": ({"num_key_value_heads": 3}, None, "MODEL_CONFIG", "key num_key_value_heads: 3, expected a divisor of"),
    "another activation": ({"hidden_act": "gelu"}, None, "MODEL_UNSUPPORTED", "key hidden_act: gelu, expected silu"),
    "NaN": (
        {}, with_tensor("norm.weight", np.full(40, np.nan, np.float32)), "MODEL_NONFINITE", "norm.weight: element 0 is"
    ),
}  # fmt: skip


def write_eagle(folder: Path, keys: dict[str, Any], change: Callable[[Tensors], None] | None) -> Path:
    EAGLE.write(folder)
    config = {name: value for name, value in (EAGLE.config() | keys).items() if value is not None}
    (folder / "config.json").write_text(json.dumps(config))
    tensors = EAGLE.tensors()
    if change is not None:
        change(tensors)
    write_tensors(folder / "model.safetensors", tensors)
    return folder


@pytest.mark.few(11)
@pytest.mark.parametrize("what", REFUSED)
def test_spc_23_a_wrong_eagle_head_is_refused(what: str, tmp_path: Path) -> None:
    keys, change, reason, text = REFUSED[what]
    model = MODEL.write(tmp_path / "m.gguf")
    with pytest.raises(_core.ModelError) as raised:
        load_path(model, write_eagle(tmp_path / "head", keys, change))
    assert raised.value.reason == reason
    assert text in str(raised.value)


def test_spc_23_a_model_of_another_kind_has_no_head(tmp_path: Path) -> None:
    """Its layers normalize after attention too, or run side by side, or have sinks."""
    for family in ("gemma2", "command-r", "gpt-oss"):
        model = tiny(family)
        path = model.write(tmp_path / f"{family}.gguf")
        with pytest.raises(_core.ModelError, match="layers are of another kind"):
            load_path(path, TinyEagle(model).write(tmp_path / family))


def nextn(change: Callable[[GgufContents], None], folder: Path) -> Path:
    contents = TinyNextN(MODEL).contents()
    change(contents)
    return contents.write(folder / "m.gguf")


def test_spc_23_a_nextn_head_with_a_wrong_tensor_is_refused(tmp_path: Path) -> None:
    def narrow(contents: GgufContents) -> None:
        contents.tensors["blk.5.nextn.eh_proj.weight"] = Tensor(np.zeros((40, 40), np.float32))

    def without(contents: GgufContents) -> None:
        del contents.tensors["blk.5.nextn.hnorm.weight"]

    with pytest.raises(_core.ModelError, match=r"blk.5.nextn.eh_proj.weight: shape \[40, 40\], expected \[80, 40\]"):
        load_path(nextn(narrow, tmp_path))
    with pytest.raises(_core.ModelError, match=r"blk.5.nextn.hnorm.weight: missing, expected \[40\]"):
        load_path(nextn(without, tmp_path))
    assert load_path(tmp_path / "m.gguf", with_own_head=False).head is None


def head_fact(path: Path) -> str | None:
    model = load_path(path)
    found = next((fact["value"] for fact in model.facts if fact["name"] == "head"), None)
    assert model.head == (found if found == "nextn" else None)
    return found


def test_spc_23_tensors_decide_where_the_keys_say_otherwise(tmp_path: Path) -> None:
    """A file whose keys promise a head without tensors has none; one with tensors and no key has one."""

    def unsaid(contents: GgufContents) -> None:
        del contents.keys["llama.nextn_predict_layers"]

    def outside(contents: GgufContents) -> None:
        unsaid(contents)
        contents.keys["llama.block_count"] = 5

    def promised(contents: GgufContents) -> None:
        for name in [name for name in contents.tensors if name.startswith("blk.5.")]:
            del contents.tensors[name]

    assert head_fact(nextn(unsaid, tmp_path)) == "nextn"
    assert head_fact(nextn(outside, tmp_path)) == "nextn"
    assert head_fact(nextn(promised, tmp_path)) == "none (the file has no tensors of it)"


def test_spc_23_heads_that_imp_cannot_run_leave_the_model_loadable(tmp_path: Path) -> None:
    def second(contents: GgufContents) -> None:
        contents.keys |= {"llama.nextn_predict_layers": 2, "llama.block_count": 7}
        contents.tensors |= {name.replace("blk.5.", "blk.6."): tensor for name, tensor in contents.tensors.items()
                             if name.startswith("blk.5.")}  # fmt: skip

    def with_experts(contents: GgufContents) -> None:
        contents.tensors["blk.5.ffn_gate_inp.weight"] = Tensor(np.zeros((4, 40), np.float32))

    def too_many(contents: GgufContents) -> None:
        contents.keys["llama.nextn_predict_layers"] = 6

    assert head_fact(nextn(second, tmp_path)) == "none (the file has more than one)"
    expected = "none (it has experts, and the model's layers have none)"
    assert head_fact(nextn(with_experts, tmp_path)) == expected
    incomplete = tiny("qwen35", n_draft_layers=1).write(tmp_path / "r.gguf")
    assert head_fact(incomplete) == "none (its tensors are of another kind)"
    with pytest.raises(_core.ModelError, match=r"nextn_predict_layers: 6, expected less than the 6 layers"):
        load_path(nextn(too_many, tmp_path))


@pytest.mark.parametrize("device", GPU_KINDS)
def test_spc_23_a_head_on_a_gpu_is_refused_by_name(device: str, tmp_path: Path) -> None:
    """Its own model runs there without it."""
    path, eagle = TinyNextN(MODEL).write(tmp_path / "m.gguf"), EAGLE.write(tmp_path / "eagle")
    given: dict[str, Any] = {"device": device, "unvalidated_kernels": True, "kv_dtype": "f16"}
    for head in (None, eagle):
        with pytest.raises(_core.ModelError, match="draft head on device cuda, expected cpu") as raised:
            load_path(path, head, **given)
        assert raised.value.reason == "MODEL_UNSUPPORTED"
    assert load_path(path, with_own_head=False, **given).head is None


class HeadFiles:
    """A model and its head, whose files a test breaks: what is broken is refused, or loads."""

    def __init__(self, head: TinyEagle | TinyNextN | TinyAssistant, folder: Path) -> None:
        self.model, self.head = folder / "m.gguf", None
        if isinstance(head, TinyNextN):
            self.files = [head.write(self.model)]
        else:
            head.model.write(self.model)
            self.head = head.write(folder / "head")
            self.files = sorted(self.head.iterdir()) if self.head.is_dir() else [self.head]
        self.whole = {path: path.read_bytes() for path in self.files}

    def is_refused(self, path: Path, content: bytes) -> bool:
        path.write_bytes(content)
        try:
            load_path(self.model, self.head)
        except (_core.ModelError, _core.ResourceExhausted):
            return True
        finally:
            path.write_bytes(self.whole[path])
        return False


class DirectoryOfAssistant(TinyAssistant):
    def write(self, path: Path) -> Path:
        return self.write_directory(path)


BROKEN: dict[str, TinyEagle | TinyNextN | TinyAssistant] = {
    "eagle": EAGLE,
    "nextn": TinyNextN(tiny("qwen35", n_layers=7)),
    "assistant": tiny_assistant(),
    "clusters": DirectoryOfAssistant(tiny_assistant().model, n_clusters=17),
}


@pytest.mark.long
@pytest.mark.parametrize("kind", BROKEN)
def test_spc_23_files_that_end_early_are_refused(kind: str, tmp_path: Path) -> None:
    """Every end in keys and tables in a release run, otherwise some."""
    files = HeadFiles(BROKEN[kind], tmp_path)
    step = repetitions(1, 7)
    for path, whole in files.whole.items():
        for n in [*range(0, min(len(whole), N_TABLE_BYTES), step), len(whole) - 1]:
            assert files.is_refused(path, whole[:n])
        assert not files.is_refused(path, whole)


@pytest.mark.long
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("kind", [kind for kind in BROKEN if kind != "clusters"])
def test_spc_23_mutants_load_or_are_refused(kind: str, part: int, tmp_path: Path) -> None:
    """Bytes of keys and tables."""
    rng = random.Random(part)
    files = HeadFiles(BROKEN[kind], tmp_path)
    n_refused = 0
    for _ in range(N_MUTANTS // 10):
        path = rng.choice(files.files)
        content = bytearray(files.whole[path])
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(min(len(content), N_TABLE_BYTES))
            content[at] = rng.choice([rng.randrange(256), ord("0"), ord("9"), content[at] ^ 1])
        n_refused += files.is_refused(path, bytes(content))
    assert n_refused > N_MUTANTS // 10 // 5
