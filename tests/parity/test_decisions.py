"""The probabilities of labels of a real model are those of transformers, which runs each prompt with each label."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

import imp_service
from determinism.test_real_weights import real_weights, with_real_weights
from support.calls.decisions import inputs
from support.oracles.decision_oracle import label_probabilities
from support.oracles.tolerances import REAL_LOG_ODDS

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

pytestmark = [with_real_weights, pytest.mark.timeout(1800)]

# Labels of several tokens, two of which begin as others.
FEELINGS = ["happy", "happy and warm", "sad", "sad but calm", "tired and cold"]
# Of a layer, in a file -> in the peer.
NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def peer_of(path: Path) -> Any:
    """The model of the file in transformers, with its weights in float32."""
    reader = gguf.GGUFReader(path)
    facts = {key.removeprefix("llama."): field.contents() for key, field in reader.fields.items()}
    tensors = {each.name: gguf.quants.dequantize(each.data, each.tensor_type) for each in reader.tensors}
    config = transformers.LlamaConfig(
        vocab_size=len(tensors["token_embd.weight"]),
        hidden_size=facts["embedding_length"],
        intermediate_size=facts["feed_forward_length"],
        num_hidden_layers=facts["block_count"],
        num_attention_heads=facts["attention.head_count"],
        num_key_value_heads=facts["attention.head_count_kv"],
        rms_norm_eps=facts["attention.layer_norm_rms_epsilon"],
        rope_parameters={"rope_type": "default", "rope_theta": facts["rope.freq_base"]},
        max_position_embeddings=facts["context_length"],
        tie_word_embeddings="output.weight" not in tensors,
    )
    heads = {"attn_q": config.num_attention_heads, "attn_k": config.num_key_value_heads}
    found = {"embed_tokens.weight": tensors["token_embd.weight"], "norm.weight": tensors["output_norm.weight"]}
    for i in range(config.num_hidden_layers):
        for name, theirs in NAMES.items():
            weight = tensors[f"blk.{i}.{name}.weight"]
            if name in heads:  # the file has the two halves of a head in turn
                shape = weight.shape
                weight = weight.reshape(heads[name], -1, 2, shape[1]).swapaxes(1, 2).reshape(shape)
            found[f"layers.{i}.{theirs}.weight"] = weight
    peer = transformers.LlamaForCausalLM(config).eval()
    state = {name: torch.from_numpy(np.array(value, np.float32)) for name, value in found.items()}
    peer.model.load_state_dict(state)
    return peer


def test_dec_1_probabilities_of_a_real_model_are_those_of_transformers() -> None:
    peer = peer_of(real_weights())
    errors = []
    with imp_service.load(real_weights()) as model:
        for text in inputs(4):
            prompt = f"{text} In one or two words, the writer is "
            decision = model.decide(prompt, FEELINGS)
            paths = [each.token_ids for each in decision.labels]
            assert max(map(len, paths)) > 2
            ids = model.tokenize(prompt)

            def after(path: tuple[int, ...], ids: list[int] = ids) -> Any:
                with torch.no_grad():
                    return peer(torch.tensor([[*ids, *path]])).logits[0, -1].double().numpy()

            expected = np.log(label_probabilities(after, paths))
            found = np.log([each.probability for each in decision.labels])
            errors.append(float(np.abs(found - expected).max()))
            assert np.abs(found - expected[::-1]).max() > REAL_LOG_ODDS
    print(f"errors of log odds: {sorted(errors)}")
    assert max(errors) < REAL_LOG_ODDS
