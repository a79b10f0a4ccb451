"""A tiny Gemma 4 with the features of all its sizes: a GGUF file, and the same model as a NumPy oracle."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import Tensor
from support.models.tiny_models import TinyModel, hashed
from support.oracles import numpy_rope
from support.oracles.numpy_rope import NumpyRope
from support.oracles.numpy_transformer import Array, NumpyLayer, NumpyTransformer, gelu_tanh, rms_norm


@dataclasses.dataclass
class Gemma4Layer(NumpyLayer):
    number: int = 0
    keys_of: int = 0  # the layer whose keys and values it reads; itself, or an earlier one
    output_scale: float = 1.0


@dataclasses.dataclass
class NumpyGemma4(NumpyTransformer):
    layer_table: Array | None = None  # [vocab, layers · size]
    layer_projection: Array | None = None  # [layers · size, hidden]
    layer_projection_norm: Array | None = None  # [size]

    def logits(self, tokens: Sequence[int], positions: Sequence[int] | None = None) -> Array:
        self.held: dict[int, tuple[Array, Array]] = {}
        self.layer_inputs = self.inputs_of_layers(list(tokens))
        return super().logits(tokens, positions)

    def inputs_of_layers(self, tokens: list[int]) -> Array:
        """Returns the inputs of layers [rows, layers, size]."""
        if self.layer_table is None or self.layer_projection is None or self.layer_projection_norm is None:
            return np.zeros((len(tokens), len(self.layers), 0))
        size = len(self.layer_projection_norm)
        x = self.embedding[tokens] * self.embedding_scale
        projected = (x @ self.layer_projection.T * len(x[0]) ** -0.5).reshape(len(tokens), -1, size)
        looked_up = self.layer_table[tokens].reshape(projected.shape) * np.sqrt(size)
        return (rms_norm(projected, self.layer_projection_norm, self.epsilon) + looked_up) / np.sqrt(2)

    def keys_values(self, layer: NumpyLayer, x: Array, positions: Array) -> tuple[Array, Array]:
        assert isinstance(layer, Gemma4Layer)
        if layer.keys_of == layer.number:
            rows = layer.linear(x, "v" if "v" in layer.weights else "k")
            v = rows.reshape(len(x), -1, layer.head_dim)
            k = self.rotated_heads(layer, x, "k", positions)
            self.held[layer.number] = k, rms_norm(v, np.ones(layer.head_dim), self.epsilon)
        return self.held[layer.keys_of]

    def through(self, layer: NumpyLayer, x: Array, positions: Array) -> Array:
        assert isinstance(layer, Gemma4Layer)
        attended = self.attention(layer, self.norm(layer, x, "attention_norm"), positions)
        x = x + self.norm(layer, attended, "post_attention_norm")
        fed = self.dense(layer, self.norm(layer, x, "ffn_norm"))
        if "router" in layer.weights:
            fed = self.norm(layer, fed, "post_dense_norm")
            fed = fed + self.norm(layer, self.chosen_experts(layer, x), "post_expert_norm")
        x = x + self.norm(layer, fed, "post_ffn_norm")
        if self.layer_inputs.shape[-1]:
            gated = gelu_tanh(layer.linear(x, "embedding_gate")) * self.layer_inputs[:, layer.number]
            x = x + self.norm(layer, layer.linear(gated, "embedding_output"), "post_embedding_norm")
        return x * layer.output_scale

    def dense(self, layer: NumpyLayer, x: Array) -> Array:
        return layer.linear(layer.activation(layer.linear(x, "gate")) * layer.linear(x, "up"), "down")

    def chosen_experts(self, layer: NumpyLayer, x: Array) -> Array:
        """Returns the experts' output. Router and experts have separate norms; each expert's result has a factor."""
        routed = rms_norm(x, layer.weights["router_norm"], self.epsilon) * len(x[0]) ** -0.5
        weights = self.weights_of_experts(layer, routed) * layer.weights["expert_scales"]
        return self.mixed(layer, self.norm(layer, x, "expert_norm"), weights)


_NAMES = {
    "ffn_gate_inp.scale": "router_norm", "ffn_down_exps.scale": "expert_scales", "pre_ffw_norm_2.weight": "expert_norm",
    "post_ffw_norm_1.weight": "post_dense_norm", "post_ffw_norm_2.weight": "post_expert_norm",
    "inp_gate.weight": "embedding_gate", "proj.weight": "embedding_output", "post_norm.weight": "post_embedding_norm",
    "layer_output_scale.weight": "output_scale",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TinyGemma4(TinyModel):
    """`n_kv_heads` and `head_dim` are those of windowed layers; the others have one head of twice the size."""

    n_sharing: int = 2  # the last layers, which share keys and values
    layer_embedding: int = 24  # 0: none
    values_from_keys: bool = True  # in layers without a window
    fused_experts: bool = True  # gate and up in one tensor
    turning: float = 0.25  # number of rotated pairs in layers without a window

    def head_dim_of(self, layer: int) -> int:
        return self.head_dim if self.is_windowed(layer) else 2 * self.head_dim

    def kv_heads_of(self, layer: int) -> int:
        return self.n_kv_heads if self.is_windowed(layer) else 1

    def ffn_size_of(self, layer: int) -> int:
        return 2 * self.ffn_size if self.shares(layer) else self.ffn_size

    @property
    def sharing(self) -> int:
        """The number of layers that share keys and values: few enough that each kind of layer occurs before them."""
        return max(0, min(self.n_sharing, self.n_layers - self.period))

    @property
    def n_kv_layers(self) -> int:
        return self.n_layers - self.sharing

    def shares(self, layer: int) -> bool:
        return layer >= self.n_layers - self.sharing

    def keys_of(self, layer: int) -> int:
        if not self.shares(layer):
            return layer
        before = range(self.n_layers - self.sharing)
        return max(i for i in before if self.is_windowed(i) == self.is_windowed(layer))

    def keys(self) -> dict[str, Any]:
        layers = range(self.n_layers)
        own = {
            "attention.key_length": 2 * self.head_dim, "attention.value_length": 2 * self.head_dim,
            "attention.key_length_swa": self.head_dim, "attention.value_length_swa": self.head_dim,
            "attention.head_count_kv": [self.kv_heads_of(i) for i in layers],
            "attention.sliding_window_pattern": [self.is_windowed(i) for i in layers],
            "attention.shared_kv_layers": self.sharing,
            "feed_forward_length": [self.ffn_size_of(i) for i in layers],
            "embedding_length_per_layer_input": self.layer_embedding,
            "rope.dimension_count": 2 * self.head_dim, "rope.dimension_count_swa": self.head_dim,
            "rope.freq_base_swa": self.family.windowed_theta,
        }  # fmt: skip
        if self.n_experts:
            own["expert_feed_forward_length"] = self.expert_ffn_size or self.ffn_size
        return super().keys() | {f"gemma4.{key}": value for key, value in own.items()}

    def tensors(self) -> dict[str, Tensor]:
        tensors = super().tensors()
        n_turning = int(self.turning * self.head_dim)
        divisors = [1.0] * n_turning + [1e30] * (self.head_dim - n_turning)
        tensors["rope_freqs.weight"] = Tensor(np.array(divisors, np.float32))
        if size := self.layer_embedding:
            of_all = self.n_layers * size
            spread = size**-0.5
            table = self.matrix("per_layer_token_embd.weight", self.vocab_size, of_all, spread=spread)
            tensors["per_layer_token_embd.weight"] = table
            projection = "per_layer_model_proj.weight"
            tensors[projection] = self.matrix(projection, of_all, self.hidden_size)
            tensors["per_layer_proj_norm.weight"] = self.norm("per_layer_proj_norm.weight", size)
        return tensors

    def layer_tensors(self, layer: int) -> dict[str, Tensor]:
        at = f"blk.{layer}."
        tensors = super().layer_tensors(layer)
        width, kv_width = self.head_dim_of(layer), self.kv_heads_of(layer) * self.head_dim_of(layer)
        shapes: dict[str, tuple[int, ...]] = {
            "attn_q": (self.n_heads * width, self.hidden_size), "attn_k": (kv_width, self.hidden_size),
            "attn_v": (kv_width, self.hidden_size), "attn_output": (self.hidden_size, self.n_heads * width),
            "ffn_gate": (self.ffn_size_of(layer), self.hidden_size),
            "ffn_up": (self.ffn_size_of(layer), self.hidden_size),
            "ffn_down": (self.hidden_size, self.ffn_size_of(layer)),
        }  # fmt: skip
        norms = {"attn_q_norm": width, "attn_k_norm": width}
        if self.layer_embedding:
            shapes |= {"inp_gate": (self.layer_embedding, self.hidden_size),
                       "proj": (self.hidden_size, self.layer_embedding)}  # fmt: skip
            norms["post_norm"] = self.hidden_size
        if self.n_experts:
            norms |= dict.fromkeys(("pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2"), self.hidden_size)
        unneeded = ["attn_v"] if self.values_from_keys and not self.is_windowed(layer) else []
        if self.shares(layer):
            unneeded = ["attn_k", "attn_v", "attn_k_norm"]
        tensors |= {f"{at}{name}.weight": self.matrix(f"{at}{name}.weight", *shape) for name, shape in shapes.items()}
        tensors |= {f"{at}{name}.weight": self.norm(f"{at}{name}.weight", size) for name, size in norms.items()}
        # Scores are not scaled, so the norm of q keeps them smaller than the root of the width.
        q_norm = tensors[f"{at}attn_q_norm.weight"]
        q_norm.values = (q_norm.values * width**-0.5).astype(np.float32)
        for name in unneeded:
            del tensors[f"{at}{name}.weight"]
        scale = 0.8 + 0.2 * hashed(f"{at}scale", (1,), self.seed)
        tensors[f"{at}layer_output_scale.weight"] = Tensor(scale.astype(np.float32))
        if self.n_experts:
            for name, size in (("ffn_gate_inp.scale", self.hidden_size), ("ffn_down_exps.scale", self.n_experts)):
                # The root of the width, by which the router divides.
                root = self.hidden_size**0.5 if size == self.hidden_size else 1.0
                tensors[at + name] = Tensor((root * self.norm(at + name, size).values).astype(np.float32))
            if self.fused_experts:
                parts = [tensors.pop(f"{at}ffn_{part}_exps.weight") for part in ("gate", "up")]
                values = np.concatenate([part.values for part in parts], axis=1)
                tensors[f"{at}ffn_gate_up_exps.weight"] = Tensor(values, self.dtype)
        return tensors

    def expert_matrices(self) -> dict[str, tuple[int, ...]]:
        return self.dense_matrices() | super().expert_matrices()

    # the oracle

    def oracle(
        self, stored: Callable[[Any], Any] = lambda x: x, tensors: dict[str, Tensor] | None = None
    ) -> NumpyGemma4:
        weights = {name: tensor.stored() for name, tensor in (tensors or self.tensors()).items()}
        plain = super().oracle_of(weights, stored, [self.oracle_layer(weights, i) for i in range(self.n_layers)])
        fields = {field.name: getattr(plain, field.name) for field in dataclasses.fields(plain)}
        return NumpyGemma4(
            **(fields | {"attention_scale": 1.0}),
            layer_table=weights.get("per_layer_token_embd.weight"),
            layer_projection=weights.get("per_layer_model_proj.weight"),
            layer_projection_norm=weights.get("per_layer_proj_norm.weight"),
        )

    def oracle_layer(self, weights: dict[str, NDArray[np.float64]], layer: int) -> Gemma4Layer:
        at = f"blk.{layer}."
        found = {key.removeprefix(at): value for key, value in weights.items() if key.startswith(at)}
        own = {_NAMES[name]: value for name, value in found.items() if name in _NAMES}
        shared = {key: value for key, value in weights.items() if key.removeprefix(at) not in _NAMES}
        if self.fused_experts and self.n_experts:
            gates, ups = np.split(shared.pop(f"{at}ffn_gate_up_exps.weight"), 2, axis=1)
            shared |= {f"{at}ffn_gate_exps.weight": gates, f"{at}ffn_up_exps.weight": ups}
        return Gemma4Layer(
            self.oracle_weights(shared, layer) | own, self.oracle_rope(layer),
            self.window if self.is_windowed(layer) else 0, self.family.activation, self.head_dim_of(layer),
            number=layer, keys_of=self.keys_of(layer), output_scale=float(own.pop("output_scale")[0]),
        )  # fmt: skip

    def oracle_rope(self, layer: int) -> NumpyRope:
        if self.is_windowed(layer):
            return NumpyRope(numpy_rope.plain(self.head_dim, self.family.windowed_theta))
        frequencies = numpy_rope.plain(2 * self.head_dim, float(np.float32(self.theta)))
        frequencies[int(self.turning * self.head_dim) :] = 0
        return NumpyRope(frequencies)
