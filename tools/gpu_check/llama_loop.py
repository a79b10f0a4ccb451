"""A Llama decoder in plain PyTorch with a fixed cache, made to be compiled: the speed that a careful user gets."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class LlamaShape:
    """The sizes of a model. Its weights are random, and the head is separate from the embedding."""

    n_layers: int
    hidden: int
    ffn: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    vocab: int

    @property
    def weight_elements(self) -> int:
        """The number of weights that each token reads."""
        q, kv = self.n_heads * self.head_dim, self.n_kv_heads * self.head_dim
        return self.n_layers * self.hidden * (2 * q + 2 * kv + 3 * self.ffn) + self.vocab * self.hidden


SHAPES = {
    "1b": LlamaShape(16, 2048, 8192, 32, 8, 64, 128256),
    "8b": LlamaShape(32, 4096, 14336, 32, 8, 128, 128256),
}
DRY_SHAPE = LlamaShape(2, 64, 128, 4, 2, 16, 100)


def decode_loop(torch: Any, shape: LlamaShape, *, device: str, context: int, compiled: bool) -> Callable[[int], Any]:
    """Returns a function that greedily generates a given number of tokens of one sequence from an empty cache."""
    functional = torch.nn.functional
    dtype = torch.bfloat16
    q_size, kv_size = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim

    def weight(n: int, k: int) -> Any:
        return torch.randn(n, k, device=device, dtype=dtype) * 0.02

    layers = [
        {
            "qkv": weight(q_size + 2 * kv_size, shape.hidden), "out": weight(shape.hidden, q_size),
            "gate_up": weight(2 * shape.ffn, shape.hidden), "down": weight(shape.hidden, shape.ffn),
            "norm_a": torch.ones(shape.hidden, device=device, dtype=dtype),
            "norm_f": torch.ones(shape.hidden, device=device, dtype=dtype),
            "kv": torch.randn(2, 1, shape.n_kv_heads, context, shape.head_dim, device=device, dtype=dtype),
        }
        for _ in range(shape.n_layers)
    ]  # fmt: skip
    embedding, head = weight(shape.vocab, shape.hidden), weight(shape.vocab, shape.hidden)
    frequencies = 5e5 ** -(torch.arange(0, shape.head_dim, 2, device=device) / shape.head_dim)
    places = torch.arange(context, device=device)

    def rotated(x: Any, position: Any) -> Any:
        angle = position * frequencies
        cos, sin = angle.cos().to(dtype), angle.sin().to(dtype)
        a, b = x.chunk(2, dim=-1)
        return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)

    def attention(x: Any, layer: dict[str, Any], position: Any) -> Any:
        q, k, v = (x @ layer["qkv"].t()).split([q_size, kv_size, kv_size], dim=-1)
        q = rotated(q.view(1, shape.n_heads, 1, shape.head_dim), position)
        k = rotated(k.view(1, shape.n_kv_heads, 1, shape.head_dim), position)
        layer["kv"][0].index_copy_(2, position, k)
        layer["kv"][1].index_copy_(2, position, v.view(1, shape.n_kv_heads, 1, shape.head_dim))
        mask = (places <= position).view(1, 1, 1, context)
        seen = functional.scaled_dot_product_attention(
            q, layer["kv"][0], layer["kv"][1], attn_mask=mask, enable_gqa=True
        )
        return seen.reshape(1, q_size) @ layer["out"].t()

    def step(token: Any, position: Any) -> Any:
        x = embedding[token]
        for layer in layers:
            x = x + attention(functional.rms_norm(x, (shape.hidden,), layer["norm_a"]), layer, position)
            gate, up = (functional.rms_norm(x, (shape.hidden,), layer["norm_f"]) @ layer["gate_up"].t()).chunk(2, -1)
            x = x + (functional.silu(gate) * up) @ layer["down"].t()
        return (functional.rms_norm(x, (shape.hidden,)) @ head.t()).argmax(-1)

    run = torch.compile(step, mode="reduce-overhead", fullgraph=True) if compiled else step

    def generate(n_tokens: int) -> Any:
        token = torch.zeros(1, device=device, dtype=torch.long)
        with torch.inference_mode():
            for i in range(n_tokens):
                token = run(token, torch.full((1,), i, device=device, dtype=torch.long)).clone()
        return token

    return generate
