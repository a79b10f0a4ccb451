"""Draft heads of Qwen 3.5, 3.6 and Qwen3-Next in directories: `mtp.*`, over a model with a recurrent state.

tests/model/test_draft_head.py has the same heads in GGUF files.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.bits import assert_same_bits
from support.forward_runs import logits, prompt
from support.head_runs import HEADS, bound_of, guesses, load_path
from support.hf_contents import write_hf
from support.qwen_directories import qwen_config, qwen_tensors, write_qwen
from support.tiny_heads import TinyNextN
from support.tiny_models import tiny

N_TOKENS = 39
CHAIN = [7, 3, 11, 2]
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


def off(got: np.ndarray, expected: np.ndarray) -> float:
    return float(np.abs(got - expected).max() / np.sqrt(np.mean(expected**2)))


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
