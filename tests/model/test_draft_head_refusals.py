"""Files of draft heads that are wrong: each is refused with what was found and what was expected."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from imp_service import _core
from support.gguf_contents import GgufContents, Tensor
from support.head_runs import load_path
from support.safetensors_writer import write_tensors
from support.tiny_heads import TinyEagle, TinyNextN
from support.tiny_models import tiny

MODEL = tiny("llama", n_layers=5)
EAGLE = TinyEagle(MODEL)
FUZZ_CASES = 150

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


@pytest.mark.parametrize("what", REFUSED)
def test_spc_23_a_wrong_eagle_head_is_refused(what: str, tmp_path: Path) -> None:
    keys, change, reason, text = REFUSED[what]
    model = MODEL.write(tmp_path / "m.gguf")
    with pytest.raises(_core.ModelError) as raised:
        load_path(model, write_eagle(tmp_path / "head", keys, change))
    assert raised.value.reason == reason
    assert text in str(raised.value)


def test_spc_23_a_model_of_another_kind_has_no_head(tmp_path: Path) -> None:
    """Its layers normalize after attention, or it has a recurrent state."""
    for family, why in (("gemma2", "layers are of another kind"), ("qwen35", "recurrent state")):
        model = tiny(family)
        path = model.write(tmp_path / f"{family}.gguf")
        with pytest.raises(_core.ModelError, match=why):
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
    assert head_fact(nextn(with_experts, tmp_path)) == "none (it has experts)"
    recurrent = tiny("qwen35", n_draft_layers=1).write(tmp_path / "r.gguf")
    assert head_fact(recurrent) == "none (the model has a recurrent state)"
    with pytest.raises(_core.ModelError, match=r"nextn_predict_layers: 6, expected less than the 6 layers"):
        load_path(nextn(too_many, tmp_path))


def is_refused_or_loads(model: Path, head: Path) -> bool:
    try:
        load_path(model, head)
    except _core.ModelError:
        return True
    except _core.ResourceExhausted:
        return True
    return False


def test_spc_23_files_that_end_early_are_refused(tmp_path: Path) -> None:
    model, folder = MODEL.write(tmp_path / "m.gguf"), EAGLE.write(tmp_path / "head")
    for name in ("config.json", "model.safetensors"):
        whole = (folder / name).read_bytes()
        for n in [*range(0, min(len(whole), 1200), 13), len(whole) - 1]:
            (folder / name).write_bytes(whole[:n])
            assert is_refused_or_loads(model, folder)
        (folder / name).write_bytes(whole)
    assert not is_refused_or_loads(model, folder)


def test_spc_23_mutants_load_or_are_refused(tmp_path: Path) -> None:
    """Bytes of the keys and of the table of tensors."""
    rng = random.Random(11)
    model, folder = MODEL.write(tmp_path / "m.gguf"), EAGLE.write(tmp_path / "head")
    shutil.copytree(folder, tmp_path / "whole")
    n_refused = 0
    for _ in range(FUZZ_CASES):
        name = rng.choice(["config.json", "model.safetensors"])
        content = bytearray((tmp_path / "whole" / name).read_bytes())
        for _ in range(rng.choice([1, 1, 2, 5])):
            at = rng.randrange(min(len(content), 2500))
            content[at] = rng.choice([rng.randrange(256), ord("0"), ord("9"), content[at] ^ 1])
        (folder / name).write_bytes(content)
        n_refused += is_refused_or_loads(model, folder)
        shutil.copy(tmp_path / "whole" / name, folder / name)
    assert n_refused > FUZZ_CASES // 3
