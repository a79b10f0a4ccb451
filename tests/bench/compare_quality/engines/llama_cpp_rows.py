"""Runs llama.cpp through its Python package with flash attention, in passes of a given size."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import gguf
import llama_cpp
import numpy as np

from bench.compare_quality.rows import Rows, Sequences
from support import llama_cpp_peer

FLASH_ATTENTION = 1
CELLS = 256  # a context's size is rounded up to a multiple of this


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

    @staticmethod
    def note() -> str | None:
        """Returns what restricts llama.cpp here."""
        return llama_cpp_peer.AMX_NOTE if llama_cpp_peer.has_amx() else None

    def __call__(self, path: Path, threads: int, sequences: Sequences) -> Iterator[Rows]:
        llama_cpp_peer.start()
        with ExitStack() as held:
            model = llama_cpp.llama_model_load_from_file(bytes(path), llama_cpp_peer.measured_model_params())
            assert model, f"llama.cpp does not load {path}"
            held.callback(llama_cpp.llama_model_free, model)
            n_tokens = len(sequences[0])
            context = llama_cpp.llama_init_from_model(model, self._params(n_tokens, threads))
            assert context, f"llama.cpp makes no context of {n_tokens} tokens"
            held.callback(llama_cpp.llama_free, context)
            batch = llama_cpp.llama_batch_init(n_tokens, 0, 1)
            held.callback(llama_cpp.llama_batch_free, batch)
            vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
            for tokens in sequences:
                llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
                fill(batch, tokens)
                result = llama_cpp.llama_decode(context, batch)
                assert result == 0, f"llama_decode: {result}"
                rows: Rows = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (n_tokens, vocab_size))
                yield rows.copy()

    def _params(self, n_tokens: int, threads: int) -> Any:
        params = llama_cpp.llama_context_default_params()
        params.n_ctx = -(-n_tokens // CELLS) * CELLS
        params.n_batch, params.n_ubatch = n_tokens, min(self._pass_tokens, n_tokens)
        params.n_threads = params.n_threads_batch = threads
        params.flash_attn_type = FLASH_ATTENTION
        params.type_k = params.type_v = self._kv_type
        return params


def fill(batch: Any, tokens: Any) -> None:
    """Fills a batch with one sequence from its beginning, with logits for every token."""
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
