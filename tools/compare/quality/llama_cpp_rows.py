"""Runs llama.cpp in passes of a given size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import gguf

from compare import llama_contexts
from compare.quality.rows import Rows, Sequences


class LlamaCppRows:
    """llama.cpp. Its prompts and steps use different kernels and give different bits, so there are two ways."""

    def __init__(self, kv: str, name: str, pass_tokens: int) -> None:
        self.name = f"llama.cpp, {name}"
        if kv.upper() not in gguf.GGMLQuantizationType.__members__:
            raise SystemExit(f"--kv: {kv}, llama.cpp has no such type")
        self._kv_type = int(gguf.GGMLQuantizationType[kv.upper()])
        self._pass_tokens = pass_tokens

    @classmethod
    def both_ways(cls, kv: str) -> list[LlamaCppRows]:
        """Returns sources for both ways: as it reads prompts with default settings, and as it generates."""
        return [cls(kv, "prompts", 512), cls(kv, "steps", 1)]

    def __call__(self, path: Path, threads: int, sequences: Sequences) -> Iterator[Rows]:
        n_tokens = len(sequences[0])
        sizes = {"call_tokens": n_tokens, "pass_tokens": self._pass_tokens, "kv_type": self._kv_type}
        with (
            closing(llama_contexts.LlamaModel(path, threads)) as model,
            model.context(n_tokens, **sizes) as context,
        ):
            for tokens in sequences:
                context.clear()
                context.evaluate([(token, i, 0, True) for i, token in enumerate(tokens)])
                yield context.logits(n_tokens)
