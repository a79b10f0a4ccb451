"""A tiny assistant of a tiny Gemma 4: its files in both formats, and the same assistant as a NumPy oracle."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import GgufContents, Tensor
from support.files.hf_contents import hf_layer_name
from support.files.safetensors_writer import write_tensors
from support.models.tiny_gemma4 import Gemma4Layer, NumpyGemma4, TinyGemma4
from support.models.tiny_models import tiny
from support.oracles.numpy_transformer import Array, NumpyLayer, rms_norm

_HF_NORMS = {
    "post_attention_norm": "post_attention_layernorm", "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}  # fmt: skip
_HF_TOP = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "nextn.pre_projection": "pre_projection",
    "nextn.post_projection": "post_projection",
}  # fmt: skip


@dataclasses.dataclass
class AssistantLayers(NumpyGemma4):
    """One row, over keys and values that others have made."""

    cells: dict[int, tuple[Array, Array]] = dataclasses.field(default_factory=dict)  # of each layer

    def attention(self, layer: NumpyLayer, x: Array, positions: Array) -> Array:
        assert isinstance(layer, Gemma4Layer)
        q = self.rotated_heads(layer, x, "q", positions)[0]
        k, v = (np.repeat(heads[-layer.window :], len(q) // heads.shape[1], axis=1)
                for heads in self.cells[layer.number])  # fmt: skip
        scores = np.einsum("hd,khd->hk", q, k)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        return layer.linear(np.einsum("hk,khd->hd", weights, v).reshape(1, -1), "output")


@dataclasses.dataclass
class NumpyAssistant:
    trunk: NumpyGemma4
    layers: AssistantLayers
    pre: Array  # [hidden, 2 · hidden of the trunk]
    post: Array  # [hidden of the trunk, hidden]
    sources: tuple[int, ...]  # the layers of the trunk whose keys and values each layer reads
    hidden_comes_first: bool = False
    clusters: Array | None = None  # [clusters, size]: tokens
    centroids: Array | None = None  # [clusters, hidden]
    n_used: int = 0
    ahead: int = 0  # of the position at which it stands
    advances: bool = False  # each guess stands behind the one before it

    def read(self, tokens: Sequence[int]) -> Array:
        """Takes keys and values of the trunk, and returns its hidden rows."""
        trunk, positions = self.trunk, np.arange(len(tokens), dtype=np.float64)
        trunk.held, trunk.layer_inputs = {}, trunk.inputs_of_layers(list(tokens))
        x = trunk.embedding[list(tokens)] * trunk.embedding_scale
        for layer in trunk.layers:
            x = trunk.through(layer, x, positions)
        self.layers.cells = {i: trunk.held[source] for i, source in enumerate(self.sources)}
        return rms_norm(x, trunk.final_norm, trunk.epsilon)

    def guesses(self, tokens: Sequence[int], chain: Sequence[int]) -> Array:
        """The logits of the token after `tokens`, and then of those after each token of the chain."""
        hidden = self.read(tokens[:-1])[-1]
        self.layers.layer_inputs = np.zeros((1, len(self.sources), 0))
        found = []
        for i, token in enumerate([tokens[-1], *chain]):
            embedded = self.trunk.embedding[token] * self.trunk.embedding_scale
            halves = [hidden, embedded] if self.hidden_comes_first else [embedded, hidden]
            x = (self.pre @ np.concatenate(halves))[None]
            position = len(tokens) - 1 + self.ahead + (i if self.advances else 0)
            for layer in self.layers.layers:
                x = self.layers.through(layer, x, np.array([float(position)]))
            normed = rms_norm(x, self.layers.final_norm, self.layers.epsilon)[0]
            found.append(self.scored(normed))
            hidden = self.post @ normed
        return np.array(found)

    def scored(self, normed: Array) -> Array:
        """The logits of the tokens of the clusters that are nearest."""
        logits = self.layers.head @ normed
        if self.clusters is None or self.centroids is None:
            return logits
        chosen = np.argsort(-(self.centroids @ normed), kind="stable")[: self.n_used]
        known = self.clusters[chosen].ravel()
        scored = np.full(len(logits), -1e30)
        scored[known] = logits[known]
        return scored


@dataclasses.dataclass(frozen=True)
class TinyAssistant:
    """Its last layer has no window, and the others have that of the model."""

    model: TinyGemma4
    hidden_size: int = 24
    n_layers: int = 3
    n_heads: int = 4
    dtype: str = "f32"
    n_clusters: int = 0  # 0: it scores every token
    n_clusters_used: int = 2

    @functools.cached_property
    def stack(self) -> TinyGemma4:
        """A model of such layers. Its keys and values are left out."""
        return dataclasses.replace(
            self.model, n_layers=self.n_layers, hidden_size=self.hidden_size, ffn_size=56, n_heads=self.n_heads,
            pattern=self.n_layers, n_experts=0, layer_embedding=0, n_sharing=0, logit_soft_cap=0.0, seed=9,
            dtype=self.dtype,
        )  # fmt: skip

    def keys(self) -> dict[str, Any]:
        own = {key.replace("gemma4.", "gemma4-assistant."): value for key, value in self.stack.keys().items()}
        return own | {
            "general.architecture": "gemma4-assistant",
            "gemma4-assistant.attention.shared_kv_layers": self.n_layers,
            "gemma4-assistant.embedding_length_out": self.model.hidden_size,
            "gemma4-assistant.nextn_predict_layers": self.n_layers,
        }

    def tensors(self) -> dict[str, Tensor]:
        stack, width = self.stack, self.model.hidden_size
        unneeded = ("attn_k.weight", "attn_v.weight", "attn_k_norm.weight")
        tensors = {name: tensor for name, tensor in stack.tensors().items() if not name.endswith(unneeded)}
        pre, post = "nextn.pre_projection.weight", "nextn.post_projection.weight"
        return tensors | {
            pre: stack.matrix(pre, self.hidden_size, 2 * width), post: stack.matrix(post, width, self.hidden_size)
        }  # fmt: skip

    def contents(self) -> GgufContents:
        return GgufContents(self.keys(), self.tensors())

    def write(self, path: Path) -> Path:
        return self.contents().write(path)

    def sources(self) -> tuple[int, ...]:
        """The layers of the model whose cells its layers read: the last of their kind."""
        model, stack = self.model, self.stack
        last = {model.is_windowed(i): model.keys_of(i) for i in range(model.n_layers)}
        return tuple(last[stack.is_windowed(i)] for i in range(self.n_layers))

    def oracle(self) -> NumpyAssistant:
        stored = {name: tensor.stored() for name, tensor in self.tensors().items()}
        plain = self.stack.oracle(tensors=self.stack.tensors() | self.tensors())
        layers = AssistantLayers(**{field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)})
        pre, post = (stored[f"nextn.{name}_projection.weight"] for name in ("pre", "post"))
        oracle = NumpyAssistant(self.model.oracle(), layers, pre, post, self.sources())
        if self.n_clusters == 0:
            return oracle
        centroids = self.centroids().astype(np.float64)
        return dataclasses.replace(
            oracle, clusters=self.token_ordering().reshape(self.n_clusters, -1), centroids=centroids,
            n_used=self.n_clusters_used,
        )  # fmt: skip

    def centroids(self) -> NDArray[np.float32]:
        return self.stack.matrix("centroids", self.n_clusters, self.hidden_size).values

    def token_ordering(self) -> NDArray[np.int64]:
        return np.random.default_rng(3).permutation(self.model.vocab_size)

    # a directory

    def config(self) -> dict[str, Any]:
        stack, model = self.stack, self.model
        kinds = ["sliding_attention" if stack.is_windowed(i) else "full_attention" for i in range(self.n_layers)]
        text = {
            "model_type": "gemma4_text", "num_hidden_layers": self.n_layers, "num_kv_shared_layers": self.n_layers,
            "hidden_size": self.hidden_size, "intermediate_size": stack.ffn_size, "num_attention_heads": self.n_heads,
            "num_key_value_heads": stack.n_kv_heads, "num_global_key_value_heads": stack.kv_heads_of(self.n_layers - 1),
            "attention_k_eq_v": True, "head_dim": stack.head_dim, "global_head_dim": 2 * stack.head_dim,
            "rms_norm_eps": stack.epsilon, "vocab_size": stack.vocab_size, "layer_types": kinds,
            "sliding_window": stack.window, "max_position_embeddings": stack.context, "hidden_size_per_layer_input": 0,
            "vocab_size_per_layer_input": 0, "enable_moe_block": False, "use_double_wide_mlp": False,
            "hidden_activation": "gelu_pytorch_tanh", "final_logit_softcapping": None, "attention_bias": False,
            "tie_word_embeddings": True,
            "rope_parameters": {
                "full_attention": {"rope_type": "proportional", "partial_rotary_factor": stack.turning,
                                   "rope_theta": stack.theta},
                "sliding_attention": {"rope_type": "default", "rope_theta": stack.family.windowed_theta},
            },
        }  # fmt: skip
        return {
            "architectures": ["Gemma4AssistantForCausalLM"], "model_type": "gemma4_assistant",
            "backbone_hidden_size": model.hidden_size, "tie_word_embeddings": True,
            "use_ordered_embeddings": self.n_clusters > 0, "num_centroids": self.n_clusters or 2048,
            "centroid_intermediate_top_k": self.n_clusters_used if self.n_clusters else 32, "text_config": text,
        }  # fmt: skip

    def hf_tensors(self) -> dict[str, NDArray[Any]]:
        tensors: dict[str, NDArray[Any]] = {}
        if self.n_clusters:
            tensors["masked_embedding.centroids.weight"] = self.centroids()
            tensors["masked_embedding.token_ordering"] = self.token_ordering()
        for name, tensor in self.tensors().items():
            stem = name.removesuffix(".weight")
            if stem in _HF_TOP:
                tensors[f"{_HF_TOP[stem]}.weight"] = tensor.values
            elif stem.startswith("blk."):
                _, layer, part = stem.split(".")
                at = f"model.layers.{layer}."
                if part == "layer_output_scale":
                    tensors[f"{at}layer_scalar"] = tensor.values
                else:
                    tensors[f"{at}{_HF_NORMS.get(part) or hf_layer_name(part)}.weight"] = tensor.values
        return tensors

    def write_directory(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config()))
        write_tensors(folder / "model.safetensors", self.hf_tensors())
        return folder


def tiny_assistant(**changes: Any) -> TinyAssistant:
    model = tiny("gemma4", **changes)
    assert isinstance(model, TinyGemma4)
    return TinyAssistant(model)
