"""The built-in model files: pinned bytes, promised sizes and facts, a common vocabulary, and the required notices."""

import hashlib
from pathlib import Path
from typing import Any

import gguf
import jinja2
import pytest

from imp_service.models import demo_draft_model_path, demo_model_path
from support.oracles.numpy_qwen3 import metadata

TARGET_SHAPE = {
    "block_count": 4,
    "context_length": 512,
    "embedding_length": 256,
    "feed_forward_length": 768,
    "attention.head_count": 4,
    "attention.head_count_kv": 2,
    "attention.key_length": 64,
    "attention.value_length": 64,
    "vocab_size": 2048,
}
DRAFT_SHAPE = TARGET_SHAPE | {
    "block_count": 2,
    "embedding_length": 128,
    "feed_forward_length": 384,
    "attention.head_count": 2,
    "attention.head_count_kv": 1,
}
SHAPES = {"target": TARGET_SHAPE, "draft": DRAFT_SHAPE}


def test_the_bytes_are_pinned(model_name: str, model_path: Path, golden: dict[str, Any]) -> None:
    assert hashlib.sha256(model_path.read_bytes()).hexdigest() == golden[model_name]["sha256"]


def test_the_draft_is_a_quarter_of_the_target_or_less() -> None:
    target_bytes = demo_model_path().stat().st_size
    assert target_bytes < 4_100_000
    assert demo_draft_model_path().stat().st_size * 4 <= target_bytes


def test_the_shape_is_the_promised_one(model_name: str, model_path: Path) -> None:
    facts = metadata(model_path)
    assert facts["general.architecture"] == "qwen3"
    assert {key: facts[f"qwen3.{key}"] for key in TARGET_SHAPE} == SHAPES[model_name]
    assert facts["qwen3.rope.freq_base"] == 10_000
    assert facts["qwen3.attention.layer_norm_rms_epsilon"] == pytest.approx(1e-6)
    assert facts["general.file_type"] == gguf.LlamaFileType.MOSTLY_Q8_0


def test_matrices_are_q8_0_norms_are_f32_and_the_head_is_tied(model_path: Path) -> None:
    tensors = {tensor.name: tensor for tensor in gguf.GGUFReader(model_path).tensors}
    n_layers = metadata(model_path)["qwen3.block_count"]
    assert len(tensors) == 2 + 11 * n_layers
    assert "output.weight" not in tensors
    for name, tensor in tensors.items():
        wanted = gguf.GGMLQuantizationType.F32 if "norm" in name else gguf.GGMLQuantizationType.Q8_0
        assert tensor.tensor_type == wanted, name


def test_the_target_takes_every_k_and_iq_type() -> None:
    for tensor in gguf.GGUFReader(demo_model_path()).tensors:
        if "norm" not in tensor.name:
            assert tensor.shape[0] % 256 == 0, tensor.name


def test_the_vocabulary_is_shared_and_byte_level() -> None:
    target, draft = metadata(demo_model_path()), metadata(demo_draft_model_path())
    about_text = {key for key in target if key.startswith("tokenizer.")}
    assert about_text == {key for key in draft if key.startswith("tokenizer.")}
    assert {key: target[key] for key in about_text} == {key: draft[key] for key in about_text}
    tokens, merges = target["tokenizer.ggml.tokens"], target["tokenizer.ggml.merges"]
    assert (target["tokenizer.ggml.model"], target["tokenizer.ggml.pre"]) == ("gpt2", "qwen2")
    assert len(tokens) == len(set(tokens)) == 2048
    assert tokens[-3:] == ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    assert len(merges) == 2048 - 256 - 3
    assert {"".join(merge.split(" ")) for merge in merges} <= set(tokens)
    spelled = {character for token in tokens[:-3] for character in token}
    assert len(spelled) == 256  # GPT-2's characters for the 256 bytes
    assert not spelled & set(" \n\t")


def test_text_ends_and_turns_end() -> None:
    facts = metadata(demo_model_path())
    tokens, kinds = facts["tokenizer.ggml.tokens"], facts["tokenizer.ggml.token_type"]
    special = {key: tokens[facts[f"tokenizer.ggml.{key}_token_id"]] for key in ("eos", "eot", "bos", "padding")}
    assert special == {
        "eos": "<|im_end|>",
        "eot": "<|endoftext|>",
        "bos": "<|endoftext|>",
        "padding": "<|endoftext|>",
    }
    assert facts["tokenizer.ggml.add_bos_token"] is False
    controls = [token for token, kind in zip(tokens, kinds, strict=True) if kind == gguf.TokenType.CONTROL]
    assert controls == tokens[-3:]


def test_the_chat_template_writes_the_turns_the_model_was_trained_on() -> None:
    template = jinja2.Environment(autoescape=False).from_string(metadata(demo_model_path())["tokenizer.chat_template"])
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello"}]
    turns = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n"
    assert template.render(messages=messages) == turns
    assert template.render(messages=messages, add_generation_prompt=True) == turns + "<|im_start|>assistant\n"


def test_the_notices_travel_with_the_weights(model_path: Path) -> None:
    facts = metadata(model_path)
    assert facts["general.license"] == "Apache-2.0 AND LicenseRef-WordNet-3.0"
    assert [facts[f"general.dataset.{index}.name"].split(" ")[0] for index in range(3)] == [
        "Generated",
        "Jane",
        "WordNet",
    ]
    card = model_path.with_name("README.md").read_text(encoding="utf-8")
    assert "WordNet 3.0 Copyright 2006 by Princeton University" in card
