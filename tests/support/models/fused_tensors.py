"""Files with one tensor for q, k and v, or for gate and up of all experts, as llama.cpp's converter may write them."""

from __future__ import annotations

import copy
import re

import numpy as np

from support.files.gguf_contents import GgufContents, Tensor

# The name of the fused tensor, and of its parts from the first row on.
FUSED = {
    "attn_qkv": ("attn_q", "attn_k", "attn_v"),
    "ffn_gate_up_exps": ("ffn_gate_exps", "ffn_up_exps"),
}


def fused(contents: GgufContents, layers: set[int] | None = None) -> GgufContents:
    """The same weights with fused tensors, in all layers or in these. The tensors keep their types."""
    result = GgufContents(contents.keys, copy.copy(contents.tensors))
    for name in contents.tensors:
        found = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
        if not found or (layers is not None and int(found[1]) not in layers):
            continue
        for whole, parts in FUSED.items():
            names = [f"blk.{found[1]}.{part}.{found[3]}" for part in parts]
            if name == names[0] and all(part in result.tensors for part in names):
                result.tensors[f"blk.{found[1]}.{whole}.{found[3]}"] = joined(
                    [result.tensors.pop(part) for part in names], is_vector=found[3] == "bias"
                )
    return result


def joined(parts: list[Tensor], *, is_vector: bool) -> Tensor:
    """The rows of each expert, or of the only matrix, one below the other. Vectors are biases."""
    assert len({part.dtype for part in parts}) == 1
    axis = -1 if is_vector else -2
    encoded = [part.encoded() for part in parts]
    return Tensor(np.concatenate([part.values for part in parts], axis), parts[0].dtype, np.concatenate(encoded, axis))
