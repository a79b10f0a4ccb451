"""Tiny draft heads over tiny models: their files, and the same heads as NumPy oracles."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.gguf_contents import GgufContents, Tensor
from support.files.hf_contents import hf_config, hf_tensors, write_hf
from support.files.safetensors_writer import write_tensors
from support.models.tiny_models import TinyModel, hashed
from support.oracles import numpy_rope
from support.oracles.numpy_heads import NumpyHead
from support.oracles.numpy_rope import NumpyRope
from support.oracles.numpy_transformer import NumpyLayer

_MIMO_NAMES = {
    "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down":
    "mlp.down_proj", "attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm",
}  # fmt: skip


@dataclasses.dataclass(frozen=True)
class TinyNextN:
    """A NextN head in the file of a model."""

    model: TinyModel
    has_own_norm: bool = True
    has_own_head: bool = False
    has_own_embedding: bool = False

    @property
    def vocab_size(self) -> int:
        return self.model.vocab_size

    @property
    def wider(self) -> TinyModel:
        """The same model with one layer more, whose weights are those of the head's layer."""
        return dataclasses.replace(self.model, n_layers=self.model.n_layers + 1)

    def own_tensors(self) -> dict[str, Tensor]:
        """Returns the head's own tensors, by their names after `nextn.` and without ".weight"."""
        model, hidden = self.model, self.model.hidden_size
        tensors = {
            "eh_proj": model.matrix("eh_proj", hidden, 2 * hidden),
            "enorm": model.norm("enorm", hidden),
            "hnorm": model.norm("hnorm", hidden),
        }
        if self.has_own_norm:
            tensors["shared_head_norm"] = model.norm("shared_head_norm", hidden)
        if self.has_own_head:
            tensors["shared_head_head"] = model.matrix("shared_head_head", model.vocab_size, hidden)
        if self.has_own_embedding:
            tensors["embed_tokens"] = model.matrix("embed_tokens", model.vocab_size, hidden)
        return tensors

    def contents(self) -> GgufContents:
        plain, at = self.model.contents(), self.model.n_layers
        name = self.model.architecture
        keys = plain.keys | {f"{name}.block_count": at + 1, f"{name}.nextn_predict_layers": 1}
        own = {f"blk.{at}.nextn.{part}.weight": tensor for part, tensor in self.own_tensors().items()}
        return GgufContents(keys, plain.tensors | self.wider.layer_tensors(at) | own)

    def write(self, path: Path) -> Path:
        return self.contents().write(path)

    def write_mimo(self, path: Path) -> Path:
        """The same weights as a directory of MiMo, whose model is a Qwen 2."""
        own = {name: tensor.values for name, tensor in self.own_tensors().items()}
        at = "model.mtp_layers.0."
        hidden = self.model.hidden_size
        # Its product reads the hidden row first.
        swapped = np.concatenate([own["eh_proj"][:, hidden:], own["eh_proj"][:, :hidden]], axis=1)
        tensors = hf_tensors(self.model) | {
            f"{at}input_proj.weight": swapped,
            f"{at}token_layernorm.weight": own["enorm"],
            f"{at}hidden_layernorm.weight": own["hnorm"],
            f"{at}final_layernorm.weight": own["shared_head_norm"],
        }
        for name, tensor in self.wider.layer_tensors(self.model.n_layers).items():
            _, _, part, kind = name.split(".")
            tensors[f"{at}{_MIMO_NAMES[part]}.{kind}"] = tensor.values
        config = hf_config(self.model) | {
            "architectures": ["MiMoForCausalLM"],
            "model_type": "mimo",
            "num_nextn_predict_layers": 1,
        }
        return write_hf(path, config, tensors)

    def oracle(self) -> NumpyHead:
        model = self.model
        names = {"eh_proj": "fuse", "enorm": "embedding_norm", "hnorm": "hidden_norm", "embed_tokens": "embedding",
                 "shared_head_norm": "final_norm", "shared_head_head": "head"}  # fmt: skip
        weights = {names[name]: tensor.stored() for name, tensor in self.own_tensors().items()}
        stored = {name: tensor.stored() for name, tensor in self.wider.layer_tensors(model.n_layers).items()}
        layer = NumpyLayer(self.wider.oracle_weights(stored, model.n_layers), model.oracle_rope(model.n_layers - 1))
        trunk = model.oracle()
        return NumpyHead(trunk, weights, layer, model.head_dim, trunk.attention_scale, trunk.epsilon)


@dataclasses.dataclass(frozen=True)
class TinyEagle:
    """An EAGLE-3 head in a folder of its own."""

    model: TinyModel
    n_heads: int = 4
    n_kv_heads: int = 2
    head_dim: int = 16
    ffn_size: int = 56
    n_rows: int = 23  # tokens of its own
    theta: float = 5000.0
    epsilon: float = 1e-6
    prefix: str = "midlayer."
    taps: tuple[int, ...] = ()  # (): not stated
    norms_taps: bool = False
    residual_is_normed: bool = False
    has_own_embedding: bool = False
    has_bias: bool = False
    seed: int = 5

    @property
    def has_all_tokens(self) -> bool:
        return self.n_rows == self.model.vocab_size

    def token_ids(self) -> list[int]:
        chosen = np.random.default_rng(self.seed).choice(self.model.vocab_size, self.n_rows, replace=False)
        return sorted(int(token) for token in chosen)

    def _matrix(self, name: str, n: int, k: int) -> NDArray[np.float32]:
        return (hashed(name, (n, k), self.seed) * np.sqrt(3.0 / k)).astype(np.float32)

    def _vector(self, name: str, n: int, spread: float = 0.4, around: float = 1.0) -> NDArray[np.float32]:
        return (around + spread * hashed(name, (n,), self.seed)).astype(np.float32)

    def parts(self) -> dict[str, NDArray[np.float32]]:
        """Returns the weights by the names that the oracle uses."""
        hidden, width = self.model.hidden_size, self.n_heads * self.head_dim
        kv_width = self.n_kv_heads * self.head_dim
        parts = {
            "fuse": self._matrix("fuse", hidden, 3 * hidden),
            "embedding_norm": self._vector("embedding_norm", hidden),
            "hidden_norm": self._vector("hidden_norm", hidden),
            "ffn_norm": self._vector("ffn_norm", hidden),
            "q": self._matrix("q", width, 2 * hidden),
            "k": self._matrix("k", kv_width, 2 * hidden),
            "v": self._matrix("v", kv_width, 2 * hidden),
            "output": self._matrix("output", hidden, width),
            "gate": self._matrix("gate", self.ffn_size, hidden),
            "up": self._matrix("up", self.ffn_size, hidden),
            "down": self._matrix("down", hidden, self.ffn_size),
            "final_norm": self._vector("final_norm", hidden),
            "head": self._matrix("head", self.n_rows, hidden),
        }
        if self.norms_taps:
            parts["tap_norm"] = self._vector("tap_norm", 3 * hidden)
        if self.has_own_embedding:
            parts["embedding"] = self._matrix("embedding", self.model.vocab_size, hidden)
        if self.has_bias:
            for name, size in (("q", width), ("k", kv_width), ("v", kv_width)):
                parts[f"{name}_bias"] = self._vector(f"{name}_bias", size, around=0.0)
        return parts

    def tensors(self) -> dict[str, NDArray[Any]]:
        at = self.prefix
        names = {
            "fuse": "fc.weight", "embedding_norm": f"{at}input_layernorm.weight", "tap_norm": "input_norm.weight",
            "hidden_norm": f"{at}hidden_norm.weight", "ffn_norm": f"{at}post_attention_layernorm.weight",
            "gate": f"{at}mlp.gate_proj.weight", "up": f"{at}mlp.up_proj.weight", "down": f"{at}mlp.down_proj.weight",
            "output": f"{at}self_attn.o_proj.weight", "final_norm": "norm.weight", "head": "lm_head.weight",
            "embedding": "embed_tokens.weight",
        } | {name: f"{at}self_attn.{name}_proj.weight" for name in "qkv"} | {
            f"{name}_bias": f"{at}self_attn.{name}_proj.bias" for name in "qkv"
        }  # fmt: skip
        tensors: dict[str, NDArray[Any]] = {names[name]: values for name, values in self.parts().items()}
        if not self.has_all_tokens:
            ids = np.array(self.token_ids(), np.int64)
            tensors["d2t"] = ids - np.arange(self.n_rows)
            tensors["t2d"] = np.isin(np.arange(self.model.vocab_size), ids)
        return tensors

    def config(self) -> dict[str, Any]:
        config = {
            "architectures": ["LlamaForCausalLMEagle3"],
            "model_type": "llama",
            "num_hidden_layers": 1,
            "hidden_size": self.model.hidden_size,
            "intermediate_size": self.ffn_size,
            "num_attention_heads": self.n_heads,
            "num_key_value_heads": self.n_kv_heads,
            "head_dim": self.head_dim,
            "rms_norm_eps": self.epsilon,
            "rope_theta": self.theta,
            "hidden_act": "silu",
            "vocab_size": self.model.vocab_size,
            "draft_vocab_size": self.n_rows,
            "norm_before_fc": self.norms_taps,
            "norm_before_residual": self.residual_is_normed,
        }
        return config | ({"eagle_aux_hidden_state_layer_ids": list(self.taps)} if self.taps else {})

    def write(self, folder: Path) -> Path:
        folder.mkdir(exist_ok=True)
        (folder / "config.json").write_text(json.dumps(self.config()))
        write_tensors(folder / "model.safetensors", self.tensors())
        return folder

    def oracle(self) -> NumpyHead:
        parts = {name: values.astype(np.float64) for name, values in self.parts().items()}
        n = self.model.n_layers
        return NumpyHead(
            self.model.oracle(),
            parts,
            NumpyLayer(parts, NumpyRope(numpy_rope.plain(self.head_dim, self.theta))),
            self.head_dim,
            self.head_dim**-0.5,
            float(np.float32(self.epsilon)),
            taps=self.taps or (2, n // 2, n - 3),
            residual_is_normed=self.residual_is_normed,
            token_ids=None if self.has_all_tokens else self.token_ids(),
        )
