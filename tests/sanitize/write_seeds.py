"""Writes the valid files of which the fuzz driver makes mutants: `write_seeds.py DIRECTORY`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from support.files import gguf_writer, safetensors_writer


def main(directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    gguf_writer.small_model().write(directory / "small.gguf")
    every = [gguf_writer.Tensor(f"t.{n}", (row[1] * 2, 3), n) for n, row in gguf_writer.TENSOR_TYPES.items()]
    aligned = [gguf_writer.Key("general.alignment", gguf_writer.U32, 64)]
    gguf_writer.Gguf(keys=aligned, tensors=every, alignment=64, version=2).write(directory / "every_type.gguf")
    vocabulary = [
        gguf_writer.array(
            "tokenizer.ggml.tokens", gguf_writer.STRING, ["a", "b", "ab", "\u2581", "\u2581a", "Ġ", "<0x0A>a"]
        ),
        gguf_writer.array("tokenizer.ggml.merges", gguf_writer.STRING, ["a b", "\u2581 a", "<0x0A> a"]),
    ]
    gguf_writer.Gguf(keys=vocabulary, tensors=[]).write(directory / "vocabulary.gguf")
    small = safetensors_writer.assemble(safetensors_writer.header_of(safetensors_writer.SMALL), safetensors_writer.DATA)
    (directory / "small.safetensors").write_bytes(small)
    # As of a draft head: with the integers that map its rows to tokens.
    rows = {"norm.weight": np.ones(4, np.float32), "d2t": np.arange(3), "t2d": np.ones(5, np.bool_)}
    safetensors_writer.write_tensors(directory / "head.safetensors", rows)
    index = {"metadata": {"total_size": 26}, "weight_map": {"a": "m-1.safetensors", "b": "m-2.safetensors"}}
    (directory / "index.json").write_text(json.dumps(index))
    config = safetensors_writer.CONFIG | {"nested": {"list": [1, 2.5, [3], {"a": None}], "text": "ü🔑\n"}}
    (directory / "config.json").write_text(json.dumps(config))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
