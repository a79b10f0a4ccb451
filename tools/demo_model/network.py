"""The demo model in PyTorch: a Qwen3-shaped decoder (RMS norms, QK-norm, RoPE, GQA, SwiGLU, tied embeddings)."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Shape:
    """The sizes of a network; parameter names and sizes are those of the GGUF architecture `qwen3`."""

    hidden_size: int
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    ffn_size: int
    vocab_size: int = 2048
    max_context: int = 512
    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-6


TARGET = Shape(hidden_size=256, n_layers=4, n_heads=4, n_kv_heads=2, head_dim=64, ffn_size=768)
DRAFT = Shape(hidden_size=128, n_layers=2, n_heads=2, n_kv_heads=1, head_dim=64, ffn_size=384)


def rope_tables(shape: Shape) -> tuple[Tensor, Tensor]:
    """Returns cos and sin [max_context, head_dim / 2], in float64."""
    half = shape.head_dim // 2
    frequency = shape.rope_theta ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(shape.max_context, dtype=torch.float64)[:, None] * frequency
    return angle.cos(), angle.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates x [..., n_tokens, head_dim] in NeoX layout: dimension i pairs with i + head_dim / 2."""
    first, second = x.chunk(2, dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


class Attention(nn.Module):
    """Causal grouped-query attention with a norm on each query and key head."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        query_size, kv_size = shape.n_heads * shape.head_dim, shape.n_kv_heads * shape.head_dim
        self.attn_q = nn.Linear(shape.hidden_size, query_size, bias=False)
        self.attn_k = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.attn_v = nn.Linear(shape.hidden_size, kv_size, bias=False)
        self.attn_output = nn.Linear(query_size, shape.hidden_size, bias=False)
        self.attn_q_norm = nn.RMSNorm(shape.head_dim, eps=shape.norm_epsilon)
        self.attn_k_norm = nn.RMSNorm(shape.head_dim, eps=shape.norm_epsilon)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        rows, n_tokens, _ = x.shape

        def heads(projected: Tensor) -> Tensor:  # [rows, n_tokens, n * head_dim] -> [rows, n, n_tokens, head_dim]
            return projected.view(rows, n_tokens, -1, self.shape.head_dim).transpose(1, 2)

        query = rotate(self.attn_q_norm(heads(self.attn_q(x)).to(x.dtype)), cos, sin)
        key = rotate(self.attn_k_norm(heads(self.attn_k(x)).to(x.dtype)), cos, sin)
        value = heads(self.attn_v(x))
        group = self.shape.n_heads // self.shape.n_kv_heads
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        query, key = query.to(value.dtype), key.to(value.dtype)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.attn_output(mixed.transpose(1, 2).reshape(rows, n_tokens, -1))


class Block(nn.Module):
    """One layer: attention, then a gated feed-forward network, each after a norm and with a residual connection."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.attn_norm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_epsilon)
        self.attention = Attention(shape)
        self.ffn_norm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_epsilon)
        self.ffn_gate = nn.Linear(shape.hidden_size, shape.ffn_size, bias=False)
        self.ffn_up = nn.Linear(shape.hidden_size, shape.ffn_size, bias=False)
        self.ffn_down = nn.Linear(shape.ffn_size, shape.hidden_size, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = x + self.attention(self.attn_norm(x), cos, sin)
        normed = self.ffn_norm(x)
        return x + self.ffn_down(functional.silu(self.ffn_gate(normed)) * self.ffn_up(normed))


class Network(nn.Module):
    """Token ids [rows, n_tokens] to logits [rows, n_tokens, vocab_size]; the embedding is the output matrix."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocab_size, shape.hidden_size)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.n_layers))
        self.output_norm = nn.RMSNorm(shape.hidden_size, eps=shape.norm_epsilon)
        self.rope = rope_tables(shape)

    def initialize(self, seed: int) -> None:
        """Draws normal weights with deviation 0.02, less for the matrices that add to the residual stream."""
        generator = torch.Generator().manual_seed(seed)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                adds = name.endswith(("attn_output.weight", "ffn_down.weight"))
                scale = (2 * self.shape.n_layers) ** -0.5 if adds else 1.0
                nn.init.normal_(parameter, std=0.02 * scale, generator=generator)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.token_embd(ids)
        cos, sin = (table[: ids.shape[1]].to(x.dtype) for table in self.rope)
        for block in self.blk:
            x = block(x, cos, sin)
        return functional.linear(self.output_norm(x), self.token_embd.weight)
