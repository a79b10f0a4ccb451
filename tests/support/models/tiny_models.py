"""Tiny models of every family: a GGUF file, and the same model as a NumPy oracle."""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import GgufContents, Tensor
from support.models.tiny_families import FAMILIES, TRAITS, Family
from support.oracles import numpy_rope
from support.oracles.numpy_rope import NumpyRope
from support.oracles.numpy_transformer import NumpyLayer, NumpyTransformer, clamped_silu, layer_norm, rms_norm, xielu
from support.oracles.recurrence_oracles import DeltaOracle

__all__ = ["FAMILIES", "TinyModel", "hashed", "tiny"]


_ORACLE_NAMES = {
    "attn_norm.weight": "attention_norm", "attn_q.weight": "q", "attn_k.weight": "k", "attn_v.weight": "v",
    "attn_q.bias": "q_bias", "attn_k.bias": "k_bias", "attn_v.bias": "v_bias", "attn_norm.bias": "attention_norm_bias",
    "attn_q_norm.weight": "q_norm", "attn_k_norm.weight": "k_norm", "attn_output.weight": "output",
    "attn_output.bias": "output_bias", "post_attention_norm.weight": "post_attention_norm",
    "ffn_norm.weight": "ffn_norm", "ffn_norm.bias": "ffn_norm_bias", "ffn_gate.weight": "gate",
    "ffn_gate.bias": "gate_bias", "ffn_up.weight": "up", "ffn_up.bias": "up_bias", "ffn_down.weight": "down",
    "ffn_down.bias": "down_bias", "post_ffw_norm.weight": "post_ffn_norm", "ffn_gate_inp.weight": "router",
    "ssm_conv1d.weight": "conv", "ssm_a": "rates", "ssm_dt.bias": "step_biases", "ssm_norm.weight": "linear_norm",
    "ssm_alpha.weight": "steps", "ssm_beta.weight": "strengths", "ssm_out.weight": "output",
    "attn_qkv.weight": "linear_qkv", "attn_gate.weight": "linear_gate", "output_gate": "output_gate",
    "ffn_gate_exps.weight": "gates", "ffn_up_exps.weight": "ups", "ffn_down_exps.weight": "downs",
    "ffn_gate_inp_shexp.weight": "shared_router", "ffn_gate_shexp.weight": "shared_gate",
    "ffn_up_shexp.weight": "shared_up", "ffn_down_shexp.weight": "shared_down", "attn_sinks.weight": "sinks",
    "ffn_gate_inp.bias": "router_bias", "ffn_gate_exps.bias": "gates_bias", "ffn_up_exps.bias": "ups_bias",
    "ffn_down_exps.bias": "downs_bias",
}  # fmt: skip


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
    head_norms: bool = False  # command-r: LayerNorm of each head of q and k, which has weights of its own
    window: int = 0
    pattern: int = 0  # 0: the architecture's
    attention_soft_cap: float = 0.0
    logit_soft_cap: float = 0.0
    attention_scale: float = 0.0  # 0: the architecture's
    embedding_scale: float = 0.0  # 0: the architecture's, not stated
    residual_scale: float = 0.0  # 0: none, not stated
    logit_scale: float = 0.0  # 0: none, not stated
    query_growth: float = 0.0  # with the position, in steps of the original context
    scaling: dict[str, Any] = dataclasses.field(default_factory=dict)  # keys below rope.scaling
    rope_factors: tuple[float, ...] = ()
    short_factors: tuple[float, ...] = ()
    long_factors: tuple[float, ...] = ()
    n_experts: int = 0  # 0: one feed-forward for all rows
    n_experts_used: int = 2
    expert_ffn_size: int = 0  # 0: ffn_size
    expert_weights_normalized: bool | None = None  # None: not stated, and the architecture's
    expert_weights_scale: float = 0.0  # 0: not stated
    shared_ffn_size: int = 0  # of an expert that all rows share; 0: none
    # Of linear attention.
    delta_key_heads: int = 0
    delta_value_heads: int = 0
    delta_key_dim: int = 0
    delta_value_dim: int = 0
    conv_taps: int = 4
    n_draft_layers: int = 0  # in the file after the others
    dtype: str = "f32"  # of matrices
    embedding_dtype: str = ""  # "": dtype
    expert_dtype: str = ""  # "": dtype
    vector_dtype: str = "f32"
    seed: int = 0

    # what the families are

    @property
    def family(self) -> Family:
        return TRAITS[self.architecture]

    @property
    def gemma(self) -> bool:
        return self.family.scaled_embedding

    @property
    def normalizes_experts(self) -> bool:
        stated = self.expert_weights_normalized
        return self.family.experts_normalized if stated is None else stated

    @property
    def period(self) -> int:
        return self.pattern or self.family.window_period

    @property
    def n_kv_layers(self) -> int:
        """The number of layers that have keys and values in the cache."""
        return sum(not self.is_linear(layer) for layer in range(self.n_layers))

    def is_windowed(self, layer: int) -> bool:
        return self.window > 0 and (self.period == 1 or (layer + 1) % self.period != 0)

    def is_linear(self, layer: int) -> bool:
        period = self.family.linear_period and (self.pattern or self.family.linear_period)
        return period > 0 and (layer + 1) % period != 0

    @property
    def delta_key_width(self) -> int:
        return self.delta_key_heads * self.delta_key_dim

    @property
    def delta_value_width(self) -> int:
        return self.delta_value_heads * self.delta_value_dim

    @property
    def embedding_spread(self) -> float:
        """Small in models that multiply the embedding, so that the residual stream has the usual size."""
        return self.hidden_size**-0.5 if self.gemma else 1.0

    # the file

    def contents(self) -> GgufContents:
        return GgufContents(self.keys(), self.tensors())

    def write(self, path: Path) -> Path:
        return self.contents().write(path)

    def keys(self) -> dict[str, Any]:
        keys: dict[str, Any] = {
            "block_count": self.n_layers + self.n_draft_layers,
            "context_length": self.context,
            "embedding_length": self.hidden_size,
            "feed_forward_length": self.ffn_size,
            "attention.head_count": self.n_heads,
            "attention.head_count_kv": self.n_kv_heads,
            "attention.key_length": self.head_dim,
            "attention.value_length": self.head_dim,
            f"attention.layer_norm_{'' if self.family.layer_norm else 'rms_'}epsilon": self.epsilon,
            "rope.freq_base": self.theta,
            "rope.dimension_count": self.rope_dims or self.head_dim,
        }
        pattern = "full_attention_interval" if self.family.linear_period else "attention.sliding_window_pattern"
        optional = {
            "attention.sliding_window": self.window,
            pattern: self.pattern,
            "attention.scale": self.attention_scale,
            "embedding_scale": self.embedding_scale,
            "residual_scale": self.residual_scale,
            "logit_scale": self.logit_scale,
            "attention.temperature_scale": self.query_growth,
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
        if self.family.linear_period:
            keys |= {
                "ssm.conv_kernel": self.conv_taps,
                "ssm.state_size": self.delta_key_dim,
                "ssm.group_count": self.delta_key_heads,
                "ssm.time_step_rank": self.delta_value_heads,
                "ssm.inner_size": self.delta_value_width,
            }
        if self.n_draft_layers:
            keys["nextn_predict_layers"] = self.n_draft_layers
        if self.expert_weights_normalized is not None:
            keys["expert_weights_norm"] = self.expert_weights_normalized
        keys |= {f"rope.scaling.{key}": value for key, value in self.scaling.items()} | self.family.keys
        tokens = {
            "tokenizer.ggml.model": "gpt2",
            "tokenizer.ggml.tokens": [f"t{i}" for i in range(self.vocab_size)],
            "tokenizer.ggml.eos_token_id": 2,
        }
        return {"general.architecture": self.architecture, **{f"{self.architecture}.{k}": v for k, v in keys.items()},
                **self.xielu_keys(), **tokens}  # fmt: skip

    def xielu_keys(self) -> dict[str, list[float]]:
        """One number for each layer; the names have no architecture in front."""
        if self.architecture != "apertus":
            return {}
        values = {"alpha_p": 0.3, "alpha_n": -0.2, "beta": 0.5, "eps": -1e-6}
        return {
            f"xielu.{name}": [value * (1 + 0.1 * i) for i in range(self.n_layers)] for name, value in values.items()
        }

    def tensors(self) -> dict[str, Tensor]:
        tensors = {
            "token_embd.weight": self.matrix(
                "token_embd.weight", self.vocab_size, self.hidden_size, spread=self.embedding_spread
            ),
            "output_norm.weight": self.norm("output_norm.weight", self.hidden_size),
        }
        if self.embedding_dtype:
            tensors["token_embd.weight"].dtype = self.embedding_dtype
        if not self.tied and self.family.has_head:
            tensors["output.weight"] = self.matrix("output.weight", self.vocab_size, self.hidden_size)
        if "attn_norm" in self.family.biased:
            tensors["output_norm.bias"] = self.bias("output_norm.bias", self.hidden_size)
        factors = {
            "rope_freqs": self.rope_factors,
            "rope_factors_short": self.short_factors,
            "rope_factors_long": self.long_factors,
        }
        for name, values in factors.items():
            if values:
                tensors[f"{name}.weight"] = Tensor(np.array(values, np.float32))
        for layer in range(self.n_layers):
            tensors |= self.layer_tensors(layer)
        for layer in range(self.n_layers, self.n_layers + self.n_draft_layers):
            tensors[f"blk.{layer}.nextn.enorm.weight"] = self.norm("enorm", self.hidden_size)
        return tensors

    def layer_tensors(self, layer: int) -> dict[str, Tensor]:
        at = f"blk.{layer}."
        matrices = self.linear_matrices() if self.is_linear(layer) else self.attention_matrices()
        matrices |= self.expert_matrices() if self.n_experts else self.dense_matrices()
        norms = self.norms()
        if self.is_linear(layer):
            norms = {name: size for name, size in norms.items() if name not in ("attn_q_norm", "attn_k_norm")}
            norms["ssm_norm"] = (self.delta_value_dim,)
        biased = [name for name in self.family.biased if name in matrices or name in norms]
        if self.output_bias:
            biased += ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
        tensors = {f"{at}{name}.weight": self.matrix(f"{at}{name}.weight", *shape) for name, shape in matrices.items()}
        tensors |= {f"{at}{name}.weight": self.norm(f"{at}{name}.weight", *shape) for name, shape in norms.items()}
        for name in biased:
            shape = matrices[name][:-1] if name in matrices else norms[name]
            tensors[f"{at}{name}.bias"] = self.bias(f"{at}{name}.bias", *shape)
        if self.family.sinks:
            tensors[f"{at}attn_sinks.weight"] = self.bias(f"{at}attn_sinks.weight", self.n_heads)
        return tensors | (self.linear_vectors(at) if self.is_linear(layer) else {})

    def linear_matrices(self) -> dict[str, tuple[int, ...]]:
        width, heads, hidden = self.delta_value_width, self.delta_value_heads, self.hidden_size
        steps: dict[str, tuple[int, ...]] = {"ssm_alpha": (heads, hidden), "ssm_beta": (heads, hidden)}
        if "strengths_steps" in self.family.fused:
            steps = {"ssm_ba": (2 * heads, hidden)}
        qkv = (2 * self.delta_key_width + width, hidden)
        return {"attn_qkv": qkv, "attn_gate": (width, hidden), **steps, "ssm_out": (hidden, width)}

    def linear_vectors(self, at: str) -> dict[str, Tensor]:
        heads, channels = (self.delta_value_heads,), 2 * self.delta_key_width + self.delta_value_width
        rates = -np.exp(hashed(f"{at}ssm_a", heads, self.seed))
        taps = hashed(f"{at}ssm_conv1d.weight", (channels, self.conv_taps), self.seed)
        return {
            f"{at}ssm_a": Tensor(rates.astype(np.float32), self.vector_dtype),
            f"{at}ssm_conv1d.weight": Tensor(taps.astype(np.float32), self.vector_dtype),
            f"{at}ssm_dt.bias": self.bias(f"{at}ssm_dt.bias", self.delta_value_heads),
        }

    def attention_matrices(self) -> dict[str, tuple[int, ...]]:
        q_width, kv_width = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        inputs: dict[str, tuple[int, ...]] = {
            "attn_q": (q_width * (2 if self.family.output_gate else 1), self.hidden_size),
            "attn_k": (kv_width, self.hidden_size),
            "attn_v": (kv_width, self.hidden_size),
        }
        if "qkv" in self.family.fused:
            inputs = {"attn_qkv": (q_width + 2 * kv_width, self.hidden_size)}
        return {**inputs, "attn_output": (self.hidden_size, q_width)}

    def norms(self) -> dict[str, tuple[int, ...]]:
        names: tuple[str, ...] = {
            "pre": ("attn_norm", self.family.ffn_norm),
            "post": ("post_attention_norm", "post_ffw_norm"),
            "both": ("attn_norm", "ffn_norm", "post_attention_norm", "post_ffw_norm"),
            "parallel": ("attn_norm",),
        }[self.family.norms]
        norms: dict[str, tuple[int, ...]] = dict.fromkeys(names, (self.hidden_size,))
        if self.family.qk_norm:
            heads = (self.n_heads, self.n_kv_heads) if self.family.qk_norm == "width" else (1, 1)
            norms |= {"attn_q_norm": (heads[0] * self.head_dim,), "attn_k_norm": (heads[1] * self.head_dim,)}
        if self.head_norms:
            norms |= {"attn_q_norm": (self.n_heads, self.head_dim), "attn_k_norm": (self.n_kv_heads, self.head_dim)}
        return norms

    def dense_matrices(self) -> dict[str, tuple[int, ...]]:
        down = (self.hidden_size, self.ffn_size)
        if "gate_up" in self.family.fused:
            return {"ffn_up": (2 * self.ffn_size, self.hidden_size), "ffn_down": down}
        gate = {"ffn_gate": (self.ffn_size, self.hidden_size)} if self.family.has_gate else {}
        return {**gate, "ffn_up": (self.ffn_size, self.hidden_size), "ffn_down": down}

    def expert_matrices(self) -> dict[str, tuple[int, ...]]:
        size = self.expert_ffn_size or self.ffn_size
        shared: dict[str, tuple[int, ...]] = {
            "ffn_gate_inp_shexp": (self.hidden_size,),
            "ffn_gate_shexp": (self.shared_ffn_size, self.hidden_size),
            "ffn_up_shexp": (self.shared_ffn_size, self.hidden_size),
            "ffn_down_shexp": (self.hidden_size, self.shared_ffn_size),
        }
        if not self.family.shared_is_gated:
            del shared["ffn_gate_inp_shexp"]
        return (shared if self.shared_ffn_size else {}) | {
            "ffn_gate_inp": (self.n_experts, self.hidden_size),
            "ffn_gate_exps": (self.n_experts, size, self.hidden_size),
            "ffn_up_exps": (self.n_experts, size, self.hidden_size),
            "ffn_down_exps": (self.n_experts, self.hidden_size, size),
        }

    def matrix(self, name: str, *shape: int, spread: float = 0.0) -> Tensor:
        """Rows that keep the size of what they are multiplied with, or elements of the given spread."""
        values = hashed(name, shape, self.seed) * (spread or np.sqrt(3.0 / shape[-1]))
        of_type = self.expert_dtype if "_exps" in name and self.expert_dtype else self.dtype
        return Tensor(values.astype(np.float32), "f32" if "ffn_gate_inp" in name else of_type)

    def norm(self, name: str, *shape: int) -> Tensor:
        return Tensor((1 + 0.4 * hashed(name, shape, self.seed)).astype(np.float32), self.vector_dtype)

    def bias(self, name: str, *shape: int) -> Tensor:
        """Returns a bias. Those of gates with limits are so large that values reach the limits."""
        spread = 9.0 if name.endswith(("gate_exps.bias", "up_exps.bias")) else 2.0 if "sinks" in name else 0.3
        return Tensor((spread * hashed(name, shape, self.seed)).astype(np.float32), self.vector_dtype)

    # the oracle

    def oracle(
        self, stored: Callable[[Any], Any] = lambda x: x, tensors: dict[str, Tensor] | None = None
    ) -> NumpyTransformer:
        """The model with these weights, or its own; `stored` is what the cache makes of keys and values."""
        weights = {name: tensor.stored() for name, tensor in (tensors or self.tensors()).items()}
        layers = [
            NumpyLayer(self.oracle_weights(weights, layer), self.oracle_rope(layer),
                       self.window if self.is_windowed(layer) else 0, self.oracle_activation(layer),
                       gated=clamped_silu if self.family.clamped else None, delta=self.oracle_delta(layer))
            for layer in range(self.n_layers)
        ]  # fmt: skip
        return self.oracle_of(weights, stored, layers)

    def oracle_of(
        self, weights: dict[str, NDArray[np.float64]], stored: Callable[[Any], Any], layers: Sequence[NumpyLayer]
    ) -> NumpyTransformer:
        embedding = weights["token_embd.weight"]
        scale = self.logit_scale or 1.0
        return NumpyTransformer(
            embedding=embedding,
            layers=layers,
            final_norm=weights["output_norm.weight"],
            final_norm_bias=weights.get("output_norm.bias"),
            head=weights.get("output.weight", embedding),
            head_dim=self.head_dim,
            epsilon=float(np.float32(self.epsilon)),
            attention_scale=self.attention_scale or self.head_dim**-0.5,
            norms=layer_norm if self.family.layer_norm else rms_norm,
            rotates_before_norm=self.family.qk_norm == "rotated",
            embedding_scale=self.hidden_size**0.5 if self.gemma else self.embedding_scale or 1.0,
            residual_scale=self.residual_scale or 1.0,
            logit_scale=scale if self.family.multiplies_logits else 1 / scale,
            parallel_blocks=self.family.norms == "parallel",
            query_growth=self.query_growth,
            query_period=self.scaling.get("original_context_length", self.context),
            attention_soft_cap=self.attention_soft_cap or self.family.attention_soft_cap,
            logit_soft_cap=self.logit_soft_cap or self.family.logit_soft_cap,
            n_experts_used=self.n_experts_used,
            expert_weights_normalized=self.normalizes_experts,
            expert_weights_scale=self.expert_weights_scale or 1.0,
            stored=stored,
        )

    def oracle_activation(self, layer: int) -> Callable[[Any], Any]:
        if self.architecture != "apertus":
            return self.family.activation
        stored = {name.removeprefix("xielu."): np.float64(np.float32(values[layer]))
                  for name, values in self.xielu_keys().items()}  # fmt: skip
        return lambda x: xielu(x, **stored)

    def oracle_weights(self, weights: dict[str, NDArray[np.float64]], layer: int) -> dict[str, NDArray[np.float64]]:
        names = _ORACLE_NAMES | {f"{self.family.ffn_norm}.weight": "ffn_norm"}
        at = f"blk.{layer}."
        found = {key.removeprefix(at): value for key, value in weights.items() if key.startswith(at)}
        if self.is_linear(layer):
            if "ssm_ba.weight" in found:
                groups = found.pop("ssm_ba.weight").reshape(self.delta_key_heads, 2, -1, self.hidden_size)
                for part, name in enumerate(("ssm_beta.weight", "ssm_alpha.weight")):
                    found[name] = groups[:, part].reshape(-1, self.hidden_size)
        elif self.family.output_gate:
            heads = found["attn_q.weight"].reshape(self.n_heads, 2, self.head_dim, self.hidden_size)
            for part, name in enumerate(("attn_q.weight", "output_gate")):
                found[name] = heads[:, part].reshape(-1, self.hidden_size)
        if "qkv" in self.family.fused:
            q_width, kv_width = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
            parts = np.split(found.pop("attn_qkv.weight"), [q_width, q_width + kv_width])
            found |= dict(zip(("attn_q.weight", "attn_k.weight", "attn_v.weight"), parts, strict=True))
        if "gate_up" in self.family.fused:
            found["ffn_gate.weight"], found["ffn_up.weight"] = np.split(found["ffn_up.weight"], 2)
        return {names[key]: value for key, value in found.items()}

    def oracle_delta(self, layer: int) -> DeltaOracle | None:
        if not self.is_linear(layer):
            return None
        stored = self.linear_vectors(f"blk.{layer}.")
        shape = (self.delta_value_heads, self.delta_key_dim, self.delta_value_dim)
        rates, biases = (stored[f"blk.{layer}.{name}"].stored() for name in ("ssm_a", "ssm_dt.bias"))
        return DeltaOracle(self.delta_key_heads, self.family.value_heads_interleaved, rates, biases, np.zeros(shape))

    def has_rope(self, layer: int) -> bool:
        if self.family.rope_in_windows_only and self.window:
            return self.is_windowed(layer)
        return not self.family.rope_period or (layer + 1) % self.family.rope_period != 0

    def oracle_rope(self, layer: int) -> NumpyRope:
        dims, family = self.rope_dims or self.head_dim, self.family
        if not self.has_rope(layer):
            return NumpyRope(np.zeros(0))
        theta, scaling = float(np.float32(self.theta)), self.scaling
        if self.is_windowed(layer):
            theta = family.windowed_theta or theta
            scaling = {} if family.windowed_unscaled else scaling
        frequencies, magnitude = numpy_rope.plain(dims, theta), float(np.float32(scaling.get("attn_factor", 1.0)))
        kind, factor = scaling.get("type", "linear"), scaling.get("factor", 1.0)
        original = scaling.get("original_context_length", self.context)
        if kind == "linear":
            frequencies = numpy_rope.linear(dims, theta, factor)
        elif kind == "yarn":
            mscales = (1, scaling.get("yarn_log_multiplier", 0))
            frequencies, magnitude = numpy_rope.yarn(
                dims, theta, factor, original, mscales=mscales, truncated=family.yarn_truncated
            )
        factors = self.rope_factors or (self.long_factors if self.context > original else self.short_factors)
        if factors:
            frequencies = frequencies / np.array(factors, np.float32).astype(np.float64)
        return NumpyRope(frequencies, magnitude, family.adjacent)


def tiny(architecture: str, **changes: Any) -> TinyModel:
    """A model of the family with every trait that the family has, however small."""
    from support.models.tiny_gemma4 import TinyGemma4

    kind = TinyGemma4 if architecture == "gemma4" else TinyModel
    return kind(architecture=architecture, **(TRAITS[architecture].sizes | changes))
