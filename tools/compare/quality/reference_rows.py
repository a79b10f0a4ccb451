"""Runs the weights of a GGUF file, decoded by the `gguf` package, in the NumPy transformer of the tests.

It computes in float64. Errors of float32 would be far below those of any engine's cache or activations.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from compare.quality.rows import Rows, Sequences
from support.oracles import numpy_rope
from support.oracles.numpy_rope import NumpyRope
from support.oracles.numpy_transformer import NumpyLayer, NumpyTransformer, rms_norm

Array = NDArray[np.float64]

# Tensors of a layer by the oracle's names; a file has those of its architecture.
NAMES = {
    "attn_norm": "attention_norm",
    "attn_q": "q",
    "attn_k": "k",
    "attn_v": "v",
    "attn_q_norm": "q_norm",
    "attn_k_norm": "k_norm",
    "attn_output": "output",
    "ffn_norm": "ffn_norm",
    "ffn_gate": "gate",
    "ffn_up": "up",
    "ffn_down": "down",
}
# Architectures with adjacent rotary pairs.
ADJACENT = {"llama": True, "qwen3": False}
# The head computes this many rows at once, because float64 rows of large vocabularies are large.
ROWS_AT_ONCE = 64


class ReferenceRows:
    """The reference. It runs all sequences layer by layer, so that it decodes each layer once and holds only one."""

    def __init__(self, path: Path) -> None:
        reader = gguf.GGUFReader(path)
        facts = {key: field.contents() for key, field in reader.fields.items()}
        self._architecture: str = facts["general.architecture"]
        self._facts: dict[str, Any] = {key.partition(".")[2]: value for key, value in facts.items()}
        self._tensors = {tensor.name: tensor for tensor in reader.tensors}
        if (
            self._architecture not in ADJACENT
            or "rope.scaling.type" in self._facts
            or "rope_freqs.weight" in self._tensors
        ):
            known = ", ".join(ADJACENT)
            raise SystemExit(f"{path}: {self._architecture}, expected one of {known}, without a scaling of positions")

    def __call__(self, sequences: Sequences) -> Iterator[Rows]:
        """Yields the rows of each sequence."""
        model = self._model
        positions = np.arange(len(sequences[0]), dtype=np.float64)
        streams = [model.embedding[list(tokens)] for tokens in sequences]
        for number in range(self._facts["block_count"]):
            layer = self._layer(number)
            streams = [model.through(layer, stream, positions) for stream in streams]
        for stream in streams:
            normed = rms_norm(stream, model.final_norm, model.epsilon)
            parts = np.split(normed, range(ROWS_AT_ONCE, len(normed), ROWS_AT_ONCE))
            yield np.concatenate([(part @ model.head.T).astype(np.float32) for part in parts])

    @cached_property
    def _model(self) -> NumpyTransformer:
        """The model without its layers."""
        embedding = self._weight("token_embd.weight")
        head_dim = self._facts.get("attention.key_length")
        head_dim = head_dim or self._facts["embedding_length"] // self._facts["attention.head_count"]
        return NumpyTransformer(
            embedding=embedding,
            layers=(),
            final_norm=self._weight("output_norm.weight"),
            head=self._weight("output.weight") if "output.weight" in self._tensors else embedding,
            head_dim=head_dim,
            epsilon=self._facts["attention.layer_norm_rms_epsilon"],
            attention_scale=head_dim**-0.5,
        )

    def _layer(self, number: int) -> NumpyLayer:
        frequencies = numpy_rope.plain(self._model.head_dim, self._facts["rope.freq_base"])
        prefix = f"blk.{number}."
        found = {name.removeprefix(prefix) for name in self._tensors if name.startswith(prefix)}
        weights = {NAMES[name.removesuffix(".weight")]: self._weight(prefix + name) for name in found}
        return NumpyLayer(weights, NumpyRope(frequencies, adjacent=ADJACENT[self._architecture]))

    def _weight(self, name: str) -> Array:
        tensor = self._tensors[name]
        return gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(np.float64)
