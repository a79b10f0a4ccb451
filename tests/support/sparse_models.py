"""Writes model files of any size as sparse files: a complete header and a hole in place of the data."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

from support.gguf_writer import F32, STRING, U32, Gguf, Key, Tensor, array
from support.tiny_models import TinyModel


def sparse_model(path: Path, model: TinyModel) -> int:
    """Writes the header of a llama of this shape with f32 weights, and the hole; returns the weights' size in bytes."""
    file = Gguf(keys=[_key(name, value) for name, value in model.keys().items()])
    n_bytes = 0
    for name, dims in _shapes(model).items():
        file.tensors.append(Tensor(name, dims, data=b"", offset=n_bytes))
        n_bytes += file.padded(4 * math.prod(dims))
    header = file.header()
    path.write_bytes(header)
    os.truncate(path, len(header) + n_bytes)
    return n_bytes


def _key(name: str, value: Any) -> Key:
    if isinstance(value, list):
        return array(name, STRING, value)
    kind = {int: U32, float: F32, str: STRING}[type(value)]
    return Key(name, kind, value)


def _shapes(model: TinyModel) -> dict[str, tuple[int, ...]]:
    """Returns each tensor's dimensions in the order of the file: the row's length first."""
    hidden, q_width, kv_width = model.hidden_size, model.n_heads * model.head_dim, model.n_kv_heads * model.head_dim
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (hidden, model.vocab_size),
        "output_norm.weight": (hidden,),
        "output.weight": (hidden, model.vocab_size),
    }
    layer = {
        "attn_norm": (hidden,),
        "attn_q": (hidden, q_width),
        "attn_k": (hidden, kv_width),
        "attn_v": (hidden, kv_width),
        "attn_output": (q_width, hidden),
        "ffn_norm": (hidden,),
        "ffn_gate": (hidden, model.ffn_size),
        "ffn_up": (hidden, model.ffn_size),
        "ffn_down": (model.ffn_size, hidden),
    }
    for i in range(model.n_layers):
        shapes |= {f"blk.{i}.{name}.weight": dims for name, dims in layer.items()}
    return shapes
