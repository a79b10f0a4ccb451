"""Draft heads, in GGUF files and in directories of Qwen, equal their formula, and change nothing of their model."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from imp_service import _core, _testing
from support.files.gguf_contents import GgufContents
from support.files.hf_contents import write_hf
from support.kernels.bits import assert_same_bits
from support.models.forward_runs import logits, prompt
from support.models.head_runs import HEADS, bound_of, guesses, load_head, load_path
from support.models.qwen_directories import qwen_config, qwen_tensors, write_qwen
from support.models.tiny_heads import TinyNextN
from support.models.tiny_models import tiny
from support.oracles import numpy_rope
from support.oracles.numpy_heads import NumpyHead
from support.oracles.numpy_rope import NumpyRope

UNLIKELY = -1e30
N_TOKENS = 39
CHAIN = [7, 3, 11, 2]


def off(got: NDArray[np.float32], expected: NDArray[np.float64]) -> float:
    """The largest difference, relative to the root mean square of the logits of tokens that the head knows."""
    known = expected > UNLIKELY / 2
    assert np.array_equal(got[~known], expected[~known].astype(np.float32))
    return float(np.abs(got[known] - expected[known]).max() / np.sqrt(np.mean(expected[known] ** 2)))


@pytest.mark.few(8)
@pytest.mark.parametrize("name", HEADS)
def test_spc_20_heads_equal_their_formula(name: str, tmp_path: Path) -> None:
    head = HEADS[name]
    tokens = prompt(N_TOKENS, head.model.vocab_size)
    expected = head.oracle().guesses(tokens, CHAIN)
    got = guesses(load_head(head, tmp_path), tokens, CHAIN)
    assert off(got, expected) < bound_of(head)
    assert len({row.tobytes() for row in got}) == len(CHAIN) + 1


def test_spc_20_mimo_equals_its_formula(tmp_path: Path) -> None:
    head = TinyNextN(tiny("qwen2", tied=False))
    tokens = prompt(N_TOKENS, head.model.vocab_size)
    model = load_path(head.write_mimo(tmp_path / "model.safetensors"))
    assert model.architecture == "mimo" and model.head == "nextn"
    assert off(guesses(model, tokens, CHAIN), head.oracle().guesses(tokens, CHAIN)) < bound_of(head)


@pytest.mark.parametrize("name", ["nextn_qwen3", "eagle_llama", "eagle_taps", "nextn_qwen3next"])
def test_spc_20_every_row_of_a_prompt_gives_its_guess(name: str, tmp_path: Path) -> None:
    head = HEADS[name]
    tokens = prompt(N_TOKENS, head.model.vocab_size)
    oracle, n = head.oracle(), N_TOKENS - 1
    hidden = oracle.hidden(tokens[:-1])
    _, expected = oracle.outputs(tokens[1:], oracle.own_rows(hidden))
    forward = _testing.HeadForward(load_head(head, tmp_path), 8)
    forward.evaluate(tokens[:-1], 0)
    got = forward.hidden()
    assert np.abs(got - hidden).max() < bound_of(head) * np.sqrt(np.mean(hidden**2))
    forward.observe(tokens[1:], 0, range(n))
    assert off(forward.guess(range(n), range(n)), expected) < bound_of(head)


def with_heads_by_layer(path: Path, first_heads: int) -> Path:
    """A Granite whose layers, 0, 1 and that of the head, have `first_heads`, 6 and 6 heads of k and v.

    Those of layer 0 are copies of one, so that each number of them gives the same output.
    """
    wide = tiny("granite", n_layers=2, n_heads=6, n_kv_heads=6, residual_scale=0.0)
    contents = TinyNextN(wide).contents()
    keys = {name: value for name, value in contents.keys.items() if "nextn" not in name}
    keys |= {"granite.block_count": 2, "granite.attention.head_count_kv": [first_heads, 6]}
    names = {"eh_proj": "input_proj", "enorm": "token_layernorm", "hnorm": "hidden_layernorm",
             "shared_head_norm": "final_layernorm"}  # fmt: skip
    tensors = {}
    for name, tensor in contents.tensors.items():
        part = name.removeprefix("blk.2.").removesuffix(".weight")
        if part.startswith("nextn."):
            part = names[part.removeprefix("nextn.")]
        tensors[f"model.mtp_layers.0.{part}.weight" if name.startswith("blk.2.") else name] = tensor
    for name in ("blk.0.attn_k.weight", "blk.0.attn_v.weight"):
        one = tensors[name].values[: wide.head_dim]
        tensors[name] = dataclasses.replace(tensors[name], values=np.tile(one, (first_heads, 1)))
    return GgufContents(keys, tensors).write(path)


def test_m85_spc_20_the_layer_of_a_head_has_the_sizes_of_the_layer_it_is_like(tmp_path: Path) -> None:
    model = tiny("granite")
    tokens = prompt(N_TOKENS, model.vocab_size)
    most = bound_of(TinyNextN(model))
    expected = guesses(load_path(with_heads_by_layer(tmp_path / "equal.gguf", 6)), tokens, CHAIN)
    for first_heads in (1, 2, 3):
        loaded = load_path(with_heads_by_layer(tmp_path / "m.gguf", first_heads))
        assert loaded.head == "nextn"
        assert off(guesses(loaded, tokens, CHAIN), expected.astype(np.float64)) < most


def changed(oracle: NumpyHead, **fields: Any) -> NumpyHead:
    return dataclasses.replace(oracle, **fields)


def without_norm(oracle: NumpyHead) -> NumpyHead:
    return changed(oracle, weights=oracle.weights | {"hidden_norm": np.ones_like(oracle.weights["hidden_norm"])})


def without(*names: str) -> Callable[[NumpyHead], NumpyHead]:
    """The layer without these steps."""

    def change(oracle: NumpyHead) -> NumpyHead:
        weights = {name: values for name, values in oracle.layer.weights.items() if name not in names}
        return changed(oracle, layer=dataclasses.replace(oracle.layer, weights=weights))

    return change


def wider_rope(oracle: NumpyHead) -> NumpyHead:
    """The whole head rotates, and not a half of it."""
    rope = NumpyRope(numpy_rope.plain(oracle.head_dim, 10000.0))
    return changed(oracle, layer=dataclasses.replace(oracle.layer, rope=rope))


CONTROLS = {
    "nextn order": ("nextn_qwen3", lambda oracle: changed(oracle, hidden_comes_first=True)),
    "nextn norm": ("nextn_qwen3", without_norm),
    "nextn final norm": (
        "nextn_with_the_models_norm",
        lambda oracle: changed(oracle, weights=oracle.weights | {"final_norm": np.ones_like(oracle.trunk.final_norm)}),
    ),
    "qwen order": ("nextn_qwen35", lambda oracle: changed(oracle, hidden_comes_first=True)),
    "qwen gate of attention": ("nextn_qwen35", without("output_gate")),
    "qwen norms of q and k": ("nextn_qwen35", without("q_norm", "k_norm")),
    "qwen rope": ("nextn_qwen35", wider_rope),
    "qwen shared expert": ("nextn_qwen35moe", without("shared_gate")),
    "qwen gate of the shared expert": ("nextn_qwen3next", without("shared_router")),
    "qwen experts used": (
        "nextn_qwen3next",
        lambda oracle: changed(oracle, trunk=dataclasses.replace(oracle.trunk, n_experts_used=1)),
    ),
    "eagle order": ("eagle_llama", lambda oracle: changed(oracle, hidden_comes_first=True)),
    "eagle norm": ("eagle_llama", without_norm),
    "eagle tap": ("eagle_llama", lambda oracle: changed(oracle, taps=(1, 2, 2))),
    "eagle residual": ("eagle_llama", lambda oracle: changed(oracle, residual_is_normed=True)),
    "eagle ids": ("eagle_all_tokens", lambda oracle: changed(oracle, token_ids=[1, 0, *range(2, 51)])),
}


@pytest.mark.few(6)
@pytest.mark.parametrize("name", CONTROLS)
def test_spc_20_hon_1_another_formula_is_seen(name: str, tmp_path: Path) -> None:
    of, change = CONTROLS[name]
    head = HEADS[of]
    tokens = prompt(N_TOKENS, head.model.vocab_size)
    got = guesses(load_head(head, tmp_path), tokens, CHAIN)
    assert off(got, change(head.oracle()).guesses(tokens, CHAIN)) > 0.01


@pytest.mark.parametrize("name", ["nextn_qwen3", "eagle_llama", "nextn_qwen35", "nextn_qwen3next"])
def test_spc_21_a_head_changes_no_bit_of_the_logits(name: str, tmp_path: Path) -> None:
    head = HEADS[name]
    tokens = prompt(N_TOKENS, head.model.vocab_size)
    (tmp_path / "plain").mkdir()
    plain = load_path(head.model.write(tmp_path / "plain" / "m.gguf"))
    with_head = load_head(head, tmp_path)
    assert (plain.head, with_head.head) == (None, name.split("_", maxsplit=1)[0].replace("eagle", "eagle3"))
    assert_same_bits(logits(with_head, tokens), logits(plain, tokens))


@pytest.mark.parametrize("kind", ["gguf", "mimo"])
def test_spc_21_a_file_with_a_head_loads_without_it(kind: str, tmp_path: Path) -> None:
    head = TinyNextN(tiny("qwen2", tied=False))
    path = head.write(tmp_path / "m.gguf") if kind == "gguf" else head.write_mimo(tmp_path / "model.safetensors")
    (tmp_path / "plain").mkdir()
    plain = load_path(head.model.write(tmp_path / "plain" / "m.gguf"))
    without = load_path(path, with_own_head=False)
    tokens = prompt(N_TOKENS, head.model.vocab_size)
    assert without.head is None
    assert any("not part of the model and not read" in warning for warning in without.warnings)
    [fact] = [fact for fact in without.facts if fact["name"] == "head"]
    assert (fact["value"], fact["origin"]) == ("nextn", "checkpoint")
    assert_same_bits(logits(without, tokens), logits(plain, tokens))
    assert load_path(path).warnings == []


@pytest.mark.parametrize("name", ["nextn_llama", "eagle_qwen3", "nextn_qwen35moe", "assistant"])
def test_spc_22_chunks_do_not_change_a_bit_of_the_guesses(name: str, tmp_path: Path) -> None:
    head = HEADS[name]
    tokens = prompt(N_TOKENS, head.model.vocab_size)
    model = load_head(head, tmp_path)
    whole = guesses(model, tokens, CHAIN)
    for chunk in (1, 7, 16):
        assert_same_bits(guesses(model, tokens, CHAIN, chunk), whole)


@pytest.mark.parametrize("name", ["nextn_with_all_of_its_own", "eagle_llama"])
def test_spc_21_the_plan_has_an_item_for_the_head(name: str, tmp_path: Path) -> None:
    """Its weights, its cache and its activations; the other items are those of the model alone."""
    head = HEADS[name]
    (tmp_path / "plain").mkdir()
    plain = load_path(head.model.write(tmp_path / "plain" / "m.gguf"), kv_bytes=1 << 16).memory
    model = load_head(head, tmp_path, kv_bytes=1 << 16)
    items = dict(model.memory["items"])
    n_bytes = items.pop("head")
    assert items == plain["items"] and model.n_blocks == plain["n_blocks"]
    n_weights = sum(tensor.values.nbytes for tensor in head.own_tensors().values()) if isinstance(
        head, TinyNextN
    ) else sum(values.nbytes for values in head.parts().values())  # fmt: skip
    hidden, rows = head.model.hidden_size, 512
    assert n_bytes > n_weights + 4 * hidden * rows
    with pytest.raises(_core.ResourceExhausted, match="head "):
        load_head(head, tmp_path, memory_bytes=n_bytes)


EQUAL_HEADS = {"n_layers": 7, "delta_value_heads": 2}
DENSE = TinyNextN(tiny("qwen35", **EQUAL_HEADS))
EXPERTS = TinyNextN(tiny("qwen35moe", **EQUAL_HEADS))
NEXT = TinyNextN(tiny("qwen3next", n_layers=7))
KINDS: dict[str, tuple[TinyNextN, dict[str, Any]]] = {
    "qwen3_5": (DENSE, {}),
    "qwen3_5 inside": (DENSE, {"prefix": "model.mtp."}),
    "qwen3_5_moe": (EXPERTS, {}),
    "qwen3_5_moe with stacks": (EXPERTS, {"stacks": True}),
    "qwen3_5_moe with a stack in the model": (EXPERTS, {"stacks": True, "head_stacks": False}),
    "qwen3_5_moe with a stack in the head": (EXPERTS, {"head_stacks": True}),
    "qwen3_next": (NEXT, {}),
}


def tokens_of(head: TinyNextN) -> list[int]:
    return prompt(N_TOKENS, head.model.vocab_size)


@pytest.mark.few(3)
@pytest.mark.parametrize("kind", KINDS)
def test_spc_20_heads_of_directories_equal_their_formula(kind: str, tmp_path: Path) -> None:
    head, form = KINDS[kind]
    model = load_path(write_qwen(head, tmp_path, **form))
    assert model.head == "nextn" and model.warnings == []
    assert off(guesses(model, tokens_of(head), CHAIN), head.oracle().guesses(tokens_of(head), CHAIN)) < bound_of(head)


def test_spc_20_hon_1_norms_that_are_stored_whole_are_seen(tmp_path: Path) -> None:
    model = load_path(write_qwen(DENSE, tmp_path, less=0.0))
    got = guesses(model, tokens_of(DENSE), CHAIN)
    assert off(got, DENSE.oracle().guesses(tokens_of(DENSE), CHAIN)) > 0.01


@pytest.mark.parametrize("kind", ["qwen3_5", "qwen3_5_moe with stacks", "qwen3_next"])
def test_spc_21_a_directory_with_a_head_loads_without_it(kind: str, tmp_path: Path) -> None:
    head, form = KINDS[kind]
    path = write_qwen(head, tmp_path, **form)
    with_head, without = load_path(path), load_path(path, with_own_head=False)
    assert without.head is None
    [fact] = [fact for fact in without.facts if fact["name"] == "head"]
    assert (fact["value"], fact["source"].startswith("tensor mtp.")) == ("nextn", True)
    assert any("not part of the model and not read: mtp." in warning for warning in without.warnings)
    assert_same_bits(logits(without, tokens_of(head)), logits(with_head, tokens_of(head)))


def test_spc_23_a_tensor_that_the_head_does_not_read_is_refused(tmp_path: Path) -> None:
    contents = HEADS["nextn_qwen35"].contents()
    contents.tensors["blk.7.attn_sinks.weight"] = contents.tensors["blk.7.attn_q_norm.weight"]
    path = contents.write(tmp_path / "m.gguf")
    with pytest.raises(_core.ModelError, match=r"blk.7.attn_sinks.weight: shape \[16\], expected no such tensor"):
        load_path(path)
    assert load_path(path, with_own_head=False).head is None


def test_spc_23_a_head_without_the_models_experts_is_none(tmp_path: Path) -> None:
    tensors = {name: values for name, values in qwen_tensors(EXPERTS).items() if not name.startswith("mtp.")}
    tensors |= {name: values for name, values in qwen_tensors(DENSE).items() if name.startswith("mtp.")}
    model = load_path(write_hf(tmp_path / "model.safetensors", qwen_config(EXPERTS.model), tensors))
    [fact] = [fact for fact in model.facts if fact["name"] == "head"]
    assert fact["value"] == "none (it has no experts, and the model's layers have some)"
