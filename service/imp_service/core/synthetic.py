"""Checkpoints of random weights in the shapes of real models, to measure speed. They have no tokenizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from imp_service import _core
from imp_service.core.errors import field_invalid

# Standard deviation of matrices. Those that write to the residual stream are divided by the square root of their
# number, so that it keeps its size at any depth. Norms are near one, but not all one.
DEVIATION = 0.02
NORM_DEVIATION = 0.05

# (name, type, shape with the contiguous dimension first, mean, standard deviation)
Tensor = tuple[str, str, tuple[int, ...], float, float]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a published model. All of these use the embedding as the head."""

    model: str
    architecture: str
    n_layers: int
    hidden_size: int
    ffn_size: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab_size: int
    context: int
    rope_theta: float
    norm_epsilon: float
    qk_norm: bool
    # As in Gemma: norms after attention and after the feed-forward, and a window of this many tokens in some layers.
    post_norms: bool = False
    window: int = 0
    # Experts in place of the feed-forward net, and how many of them a row uses.
    n_experts: int = 0
    n_experts_used: int = 0
    expert_ffn_size: int = 0


SHAPES: Mapping[str, Shape] = {
    "0.6b": Shape("Qwen3-0.6B", "qwen3", 28, 1024, 3072, 16, 8, 128, 151936, 40960, 1e6, 1e-6, True),
    "1.7b": Shape("Qwen3-1.7B", "qwen3", 28, 2048, 6144, 16, 8, 128, 151936, 40960, 1e6, 1e-6, True),
    "4b": Shape("Qwen3-4B", "qwen3", 36, 2560, 9728, 32, 8, 128, 151936, 40960, 1e6, 1e-6, True),
    "1b": Shape("Llama-3.2-1B", "llama", 16, 2048, 8192, 32, 8, 64, 128256, 131072, 5e5, 1e-5, False),
    "gemma-1b": Shape(
        "Gemma-3-1B", "gemma3", 26, 1152, 6912, 4, 1, 256, 262144, 32768, 1e6, 1e-6, True, post_norms=True, window=512
    ),
}


def _mostly_q4_k(name: str, layer: int, n_layers: int) -> str:
    """Six bits for v and down where errors cost most: in the first and last eighth of the layers, and every third."""
    eighth = n_layers // 8
    is_sensitive = layer < eighth or layer >= 7 * n_layers // 8 or (layer - eighth) % 3 == 2
    return "q6_k" if name in ("attn_v", "ffn_down", "ffn_down_exps") and is_sensitive else "q4_k"


@dataclass(frozen=True, slots=True)
class Mix:
    """The type of each matrix, as in published files of that name."""

    head: str
    matrix: Callable[[str, int, int], str]  # name, layer, number of layers


def _plain(dtype: str, head: str | None = None) -> Mix:
    return Mix(head or dtype, lambda name, layer, n_layers: dtype)


MIXES: Mapping[str, Mix] = {
    "q8_0": _plain("q8_0"),
    "q4_0": _plain("q4_0", head="q6_k"),
    "q4_k_m": Mix("q6_k", _mostly_q4_k),
    "mxfp4": _plain("mxfp4", head="q8_0"),
    "f8_e4m3": _plain("f8_e4m3", head="bf16"),
    "f16": _plain("f16"),
    "bf16": _plain("bf16"),
    "f32": _plain("f32"),
}


def synthetic_file(shape: str, mix: str) -> _core.ModelFile:
    """A model file in memory, with the same random weights every time."""
    for option, word, known in (("synthetic", shape, list(SHAPES)), ("type", mix, list(MIXES))):
        if word not in known:
            raise field_invalid(option, f"{word}, expected one of {', '.join(known)}")
    found = SHAPES[shape]
    return _core.make_synthetic_file(metadata(found, mix), list(tensors(found, MIXES[mix])))


def metadata(shape: Shape, mix: str) -> dict[str, object]:
    """The metadata that the architecture needs."""
    facts = {
        "block_count": shape.n_layers,
        "context_length": shape.context,
        "embedding_length": shape.hidden_size,
        "feed_forward_length": shape.ffn_size,
        "attention.head_count": shape.n_heads,
        "attention.head_count_kv": shape.n_kv_heads,
        "attention.key_length": shape.head_dim,
        "attention.value_length": shape.head_dim,
        "attention.layer_norm_rms_epsilon": shape.norm_epsilon,
        "rope.freq_base": shape.rope_theta,
    }
    if shape.n_experts:
        facts |= {
            "expert_count": shape.n_experts,
            "expert_used_count": shape.n_experts_used,
            "expert_feed_forward_length": shape.expert_ffn_size,
        }
    if shape.window:
        facts["attention.sliding_window"] = shape.window
    return {
        "general.architecture": shape.architecture,
        "general.name": f"random weights, {shape.model}, {mix.upper()}",
        **{f"{shape.architecture}.{key}": value for key, value in facts.items()},
    }


def tensors(shape: Shape, mix: Mix) -> Iterator[Tensor]:
    """Every tensor of the model."""

    def norm(name: str, size: int) -> Tensor:
        return (f"{name}.weight", "f32", (size,), 1.0, NORM_DEVIATION)

    to_residual = DEVIATION / (2 * shape.n_layers) ** 0.5
    hidden, q_size, kv_size = shape.hidden_size, shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
    matrices = {
        "attn_q": (hidden, q_size, DEVIATION),
        "attn_k": (hidden, kv_size, DEVIATION),
        "attn_v": (hidden, kv_size, DEVIATION),
        "attn_output": (q_size, hidden, to_residual),
    }
    stacks: dict[str, tuple[int, int, float]] = {}
    if shape.n_experts:
        stacks = {
            "ffn_gate_exps": (hidden, shape.expert_ffn_size, DEVIATION),
            "ffn_up_exps": (hidden, shape.expert_ffn_size, DEVIATION),
            "ffn_down_exps": (shape.expert_ffn_size, hidden, to_residual),
        }
    else:
        matrices |= {
            "ffn_gate": (hidden, shape.ffn_size, DEVIATION),
            "ffn_up": (hidden, shape.ffn_size, DEVIATION),
            "ffn_down": (shape.ffn_size, hidden, to_residual),
        }
    norms = {"attn_norm": hidden, "ffn_norm": hidden}
    if shape.qk_norm:
        norms |= {"attn_q_norm": shape.head_dim, "attn_k_norm": shape.head_dim}
    if shape.post_norms:
        norms |= {"post_attention_norm": hidden, "post_ffw_norm": hidden}

    yield ("token_embd.weight", mix.head, (hidden, shape.vocab_size), 0.0, DEVIATION)
    yield norm("output_norm", hidden)
    for layer in range(shape.n_layers):
        for name, size in norms.items():
            yield norm(f"blk.{layer}.{name}", size)
        for name, (k, n, deviation) in matrices.items():
            yield (f"blk.{layer}.{name}.weight", mix.matrix(name, layer, shape.n_layers), (k, n), 0.0, deviation)
        if shape.n_experts:
            yield (f"blk.{layer}.ffn_gate_inp.weight", "f32", (hidden, shape.n_experts), 0.0, DEVIATION)
        for name, (k, n, deviation) in stacks.items():
            dtype = mix.matrix(name, layer, shape.n_layers)
            yield (f"blk.{layer}.{name}.weight", dtype, (k, n, shape.n_experts), 0.0, deviation)
