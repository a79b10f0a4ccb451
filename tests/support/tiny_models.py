"""Tiny models of every family: a GGUF file, and the same model as a NumPy oracle."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support import numpy_rope
from support.gguf_contents import GgufContents, Tensor
from support.numpy_rope import NumpyRope
from support.numpy_transformer import NumpyLayer, NumpyTransformer, gelu_tanh, silu

FAMILIES = ("llama", "qwen2", "qwen2moe", "qwen3", "qwen3moe", "gemma2", "gemma3")
_GEMMA = ("gemma2", "gemma3")


def hashed(name: str, shape: tuple[int, ...], seed: int) -> NDArray[np.float64]:
    """Numbers in [-1, 1) that depend on name, index and seed alone (splitmix64)."""
    start = np.uint64(zlib.crc32(f"{seed}:{name}".encode()) << 20)
    with np.errstate(over="ignore"):
        z = (start + np.arange(1, int(np.prod(shape)) + 1, dtype=np.uint64)) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z ^= z >> np.uint64(31)
    return ((z >> np.uint64(11)).astype(np.float64) / 2.0**52 - 1).reshape(shape)


@dataclasses.dataclass(frozen=True)
class TinyModel:
    architecture: str = "llama"
    n_layers: int = 3
    hidden_size: int = 40
    ffn_size: int = 72
    n_heads: int = 6
    n_kv_heads: int = 2
    head_dim: int = 8
    vocab_size: int = 51
    context: int = 512
    epsilon: float = 1e-5
    theta: float = 10000.0
    rope_dims: int = 0  # 0: head_dim
    tied: bool = False
    output_bias: bool = False  # llama: biases wherever it can have them
    window: int = 0
    pattern: int = 0  # 0: the architecture's
    attention_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    attention_scale: float = 0.0  # 0: the architecture's
    scaling: dict[str, Any] = dataclasses.field(default_factory=dict)  # keys below rope.scaling
    rope_factors: tuple[float, ...] = ()
    n_experts: int = 0  # 0: one feed-forward for all rows
    n_experts_used: int = 2
    expert_ffn_size: int = 0  # 0: ffn_size
    expert_weights_normalized: bool | None = None  # None: not stated, and the architecture's
    expert_weights_scale: float = 0.0  # 0: not stated
    shared_ffn_size: int = 0  # of an expert that all rows share; 0: none
    dtype: str = "f32"  # of matrices
    embedding_dtype: str = ""  # "": dtype
    vector_dtype: str = "f32"
    seed: int = 0

    # what the families are

    @property
    def gemma(self) -> bool:
        return self.architecture in _GEMMA

    @property
    def qk_norm(self) -> bool:
        return self.architecture in ("qwen3", "qwen3moe", "gemma3")

    @property
    def qkv_bias(self) -> bool:
        return self.architecture in ("qwen2", "qwen2moe") or self.output_bias

    @property
    def normalizes_experts(self) -> bool:
        stated = self.expert_weights_normalized
        return self.architecture != "qwen2moe" if stated is None else stated

    @property
    def period(self) -> int:
        return self.pattern or {"gemma2": 2, "gemma3": 6}.get(self.architecture, 0)

    def is_windowed(self, layer: int) -> bool:
        return self.window > 0 and (not self.gemma or (layer + 1) % self.period != 0)

    @property
    def embedding_spread(self) -> float:
        """Gemma multiplies the embedding, so that the stream is as large as elsewhere."""
        return self.hidden_size**-0.5 if self.gemma else 1.0

    # the file

    def contents(self) -> GgufContents:
        return GgufContents(self.keys(), self.tensors())

    def write(self, path: Path) -> Path:
        return self.contents().write(path)

    def keys(self) -> dict[str, Any]:
        keys: dict[str, Any] = {
            "block_count": self.n_layers,
            "context_length": self.context,
            "embedding_length": self.hidden_size,
            "feed_forward_length": self.ffn_size,
            "attention.head_count": self.n_heads,
            "attention.head_count_kv": self.n_kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            "attention.layer_norm_rms_epsilon": self.epsilon,
            "rope.freq_base": self.theta,
            "rope.dimension_count": self.rope_dims or self.head_dim,
        }
        optional = {
            "attention.sliding_window": self.window,
            "attention.sliding_window_pattern": self.pattern,
            "attention.scale": self.attention_scale,
            "attn_logit_softcapping": self.attention_soft_cap,
            "final_logit_softcapping": self.logit_soft_cap,
        }
        if self.n_experts:
            optional |= {
                "expert_count": self.n_experts,
                "expert_used_count": self.n_experts_used,
                "expert_feed_forward_length": self.expert_ffn_size,
                "expert_weights_scale": self.expert_weights_scale,
                "expert_shared_feed_forward_length": self.shared_ffn_size,
            }
        keys |= {key: value for key, value in optional.items() if value}
        if self.expert_weights_normalized is not None:
            keys["expert_weights_norm"] = self.expert_weights_normalized
        keys |= {f"rope.scaling.{key}": value for key, value in self.scaling.items()}
        tokens = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": [f"t{i}" for i in range(self.vocab_size)],
            "tokenizer.ggml.eos_token_id": 2,
        }
        return {"general.architecture": self.architecture, **{f"{self.architecture}.{k}": v for k, v in keys.items()},
                **tokens}  # fmt: skip

    def tensors(self) -> dict[str, Tensor]:
        tensors = {
            "token_embd.weight": self.matrix(
                "token_embd.weight", self.vocab_size, self.hidden_size, spread=self.embedding_spread
            ),
            "output_norm.weight": self.norm("output_norm.weight", self.hidden_size),
        }
        if self.embedding_dtype:
            tensors["token_embd.weight"].dtype = self.embedding_dtype
        if not self.tied and not self.gemma:
            tensors["output.weight"] = self.matrix("output.weight", self.vocab_size, self.hidden_size)
        if self.rope_factors:
            tensors["rope_freqs.weight"] = Tensor(np.array(self.rope_factors, np.float32))
        for layer in range(self.n_layers):
            tensors |= self.layer_tensors(f"blk.{layer}.")
        return tensors

    def layer_tensors(self, at: str) -> dict[str, Tensor]:
        q_width, kv_width = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        matrices: dict[str, tuple[int, ...]] = {
            "attn_q": (q_width, self.hidden_size),
            "attn_k": (kv_width, self.hidden_size),
            "attn_v": (kv_width, self.hidden_size),
            "attn_output": (self.hidden_size, q_width),
        }
        matrices |= self.expert_matrices() if self.n_experts else self.dense_matrices()
        norms = {"attn_norm": self.hidden_size, "ffn_norm": self.hidden_size}
        if self.qk_norm:
            norms |= {"attn_q_norm": self.head_dim, "attn_k_norm": self.head_dim}
        if self.gemma:
            norms |= {"post_attention_norm": self.hidden_size, "post_ffw_norm": self.hidden_size}
        biased = ["attn_q", "attn_k", "attn_v"] if self.qkv_bias else []
        biased += ["attn_output", "ffn_gate", "ffn_up", "ffn_down"] if self.output_bias else []
        tensors = {f"{at}{name}.weight": self.matrix(f"{at}{name}.weight", *shape) for name, shape in matrices.items()}
        tensors |= {f"{at}{name}.weight": self.norm(f"{at}{name}.weight", size) for name, size in norms.items()}
        for name in biased:
            values = 0.3 * hashed(f"{at}{name}.bias", (matrices[name][0],), self.seed)
            tensors[f"{at}{name}.bias"] = Tensor(values.astype(np.float32), self.vector_dtype)
        return tensors

    def dense_matrices(self) -> dict[str, tuple[int, ...]]:
        return {
            "ffn_gate": (self.ffn_size, self.hidden_size),
            "ffn_up": (self.ffn_size, self.hidden_size),
            "ffn_down": (self.hidden_size, self.ffn_size),
        }

    def expert_matrices(self) -> dict[str, tuple[int, ...]]:
        size = self.expert_ffn_size or self.ffn_size
        shared: dict[str, tuple[int, ...]] = {
            "ffn_gate_inp_shexp": (self.hidden_size,),
            "ffn_gate_shexp": (self.shared_ffn_size, self.hidden_size),
            "ffn_up_shexp": (self.shared_ffn_size, self.hidden_size),
            "ffn_down_shexp": (self.hidden_size, self.shared_ffn_size),
        }
        return (shared if self.shared_ffn_size else {}) | {
            "ffn_gate_inp": (self.n_experts, self.hidden_size),
            "ffn_gate_exps": (self.n_experts, size, self.hidden_size),
            "ffn_up_exps": (self.n_experts, size, self.hidden_size),
            "ffn_down_exps": (self.n_experts, self.hidden_size, size),
        }

    def matrix(self, name: str, *shape: int, spread: float = 0.0) -> Tensor:
        """Rows that keep the size of what they are multiplied with, or elements of the given spread."""
        values = hashed(name, shape, self.seed) * (spread or np.sqrt(3.0 / shape[-1]))
        return Tensor(values.astype(np.float32), "f32" if "ffn_gate_inp" in name else self.dtype)

    def norm(self, name: str, size: int) -> Tensor:
        return Tensor((1 + 0.4 * hashed(name, (size,), self.seed)).astype(np.float32), self.vector_dtype)

    # the oracle

    def oracle(self, stored: Callable[[Any], Any] = lambda x: x) -> NumpyTransformer:
        """The model whose weights are what the file holds; `stored` is what the cache makes of keys and values."""
        weights = {name: tensor.stored() for name, tensor in self.tensors().items()}
        embedding = weights["token_embd.weight"]
        layers = [
            NumpyLayer(self.oracle_weights(weights, layer), self.oracle_rope(layer),
                       self.window if self.is_windowed(layer) else 0)
            for layer in range(self.n_layers)
        ]  # fmt: skip
        return NumpyTransformer(
            embedding=embedding,
            layers=layers,
            final_norm=weights["output_norm.weight"],
            head=weights.get("output.weight", embedding),
            head_dim=self.head_dim,
            epsilon=float(np.float32(self.epsilon)),
            attention_scale=self.attention_scale or self.head_dim**-0.5,
            activation=gelu_tanh if self.gemma else silu,
            embedding_scale=self.hidden_size**0.5 if self.gemma else 1.0,
            attention_soft_cap=self.attention_soft_cap or (50.0 if self.architecture == "gemma2" else 0.0),
            logit_soft_cap=self.logit_soft_cap or (30.0 if self.architecture == "gemma2" else 0.0),
            n_experts_used=self.n_experts_used,
            expert_weights_normalized=self.normalizes_experts,
            expert_weights_scale=self.expert_weights_scale or 1.0,
            stored=stored,
        )

    @staticmethod
    def oracle_weights(weights: dict[str, NDArray[np.float64]], layer: int) -> dict[str, NDArray[np.float64]]:
        names = {
            "attn_norm.weight": "attention_norm", "attn_q.weight": "q", "attn_k.weight": "k", "attn_v.weight": "v",
            "attn_q.bias": "q_bias", "attn_k.bias": "k_bias", "attn_v.bias": "v_bias",
            "attn_q_norm.weight": "q_norm", "attn_k_norm.weight": "k_norm", "attn_output.weight": "output",
            "attn_output.bias": "output_bias", "post_attention_norm.weight": "post_attention_norm",
            "ffn_norm.weight": "ffn_norm", "ffn_gate.weight": "gate", "ffn_gate.bias": "gate_bias",
            "ffn_up.weight": "up", "ffn_up.bias": "up_bias", "ffn_down.weight": "down", "ffn_down.bias": "down_bias",
            "post_ffw_norm.weight": "post_ffn_norm", "ffn_gate_inp.weight": "router", "ffn_gate_exps.weight": "gates",
            "ffn_up_exps.weight": "ups", "ffn_down_exps.weight": "downs", "ffn_gate_inp_shexp.weight": "shared_router",
            "ffn_gate_shexp.weight": "shared_gate", "ffn_up_shexp.weight": "shared_up",
            "ffn_down_shexp.weight": "shared_down",
        }  # fmt: skip
        at = f"blk.{layer}."
        return {names[key.removeprefix(at)]: value for key, value in weights.items() if key.startswith(at)}

    def oracle_rope(self, layer: int) -> NumpyRope:
        dims = self.rope_dims or self.head_dim
        adjacent = self.architecture == "llama"
        if self.architecture == "gemma3" and self.is_windowed(layer):
            return NumpyRope(numpy_rope.plain(dims, 10000.0), 1.0, adjacent)
        theta = float(np.float32(self.theta))
        frequencies, magnitude = numpy_rope.plain(dims, theta), 1.0
        kind, factor = self.scaling.get("type", "linear"), self.scaling.get("factor", 1.0)
        if kind == "linear":
            frequencies = numpy_rope.linear(dims, theta, factor)
        elif kind == "yarn":
            original = self.scaling.get("original_context_length", self.context)
            frequencies, magnitude = numpy_rope.yarn(dims, theta, factor, original)
        if self.rope_factors:
            frequencies = frequencies / np.array(self.rope_factors, np.float32).astype(np.float64)
        return NumpyRope(frequencies, magnitude, adjacent)


def tiny(architecture: str, **changes: Any) -> TinyModel:
    """A model of the family with every trait that the family has, however small."""
    traits: dict[str, Any] = {
        "gemma2": {"window": 5, "n_heads": 4, "n_kv_heads": 2, "head_dim": 16},
        "gemma3": {"window": 7, "n_layers": 7, "n_heads": 4, "n_kv_heads": 1, "theta": 1e6, "head_dim": 16},
        "qwen2": {"n_heads": 5, "n_kv_heads": 1, "tied": True, "theta": 1e6},
        "qwen2moe": {"n_heads": 5, "n_kv_heads": 1, "theta": 1e6, "n_experts": 6, "expert_ffn_size": 24,
                     "shared_ffn_size": 48},
        "qwen3": {"n_heads": 8, "n_kv_heads": 2, "head_dim": 24, "epsilon": 1e-6},
        "qwen3moe": {"n_heads": 8, "n_kv_heads": 2, "head_dim": 24, "epsilon": 1e-6, "n_experts": 7,
                     "n_experts_used": 3, "expert_ffn_size": 24},
    }.get(architecture, {})  # fmt: skip
    return TinyModel(architecture=architecture, **(traits | changes))
