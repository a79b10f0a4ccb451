"""llama.cpp through the low-level interface of its Python package, with flash attention."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from numpy.typing import NDArray

from compare.caches import room_of
from compare.refused import RefusedError
from support.oracles import llama_cpp_peer

FLASH_ATTENTION = 1
# A token, its position, its sequence, and whether its logits are wanted.
Row = tuple[int, int, int, bool]


def note() -> str | None:
    """Returns what restricts llama.cpp here."""
    return llama_cpp_peer.AMX_NOTE if llama_cpp_peer.has_amx() else None


class LlamaContext:
    """Sequences in the cache of a model, made by `LlamaModel.context`."""

    def __init__(self, context: Any, batch: Any, vocab_size: int) -> None:
        self._context, self._batch, self._vocab_size = context, batch, vocab_size
        self._memory = llama_cpp.llama_get_memory(context)

    def evaluate(self, rows: Sequence[Row]) -> None:
        """Evaluates rows, at most as many as a call takes."""
        batch = self._batch
        batch.n_tokens = len(rows)
        for i, (token, position, sequence, wants_logits) in enumerate(rows):
            batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, position, 1, wants_logits
            batch.seq_id[i][0] = sequence
        result = llama_cpp.llama_decode(self._context, batch)
        if result != 0:
            raise RefusedError(f"llama_decode: {result}")
        llama_cpp.llama_synchronize(self._context)

    def logits(self, n_rows: int) -> NDArray[np.float32]:
        """Returns the logits of the last call's rows, all of which wanted them."""
        found = np.ctypeslib.as_array(llama_cpp.llama_get_logits(self._context), (n_rows, self._vocab_size))
        return np.array(found)

    def clear(self) -> None:
        """Forgets all sequences."""
        llama_cpp.llama_memory_clear(self._memory, True)

    def forget(self, sequence: int, position: int) -> None:
        """Forgets a sequence from a position on."""
        llama_cpp.llama_memory_seq_rm(self._memory, sequence, position, -1)


class LlamaModel:
    """A loaded model. Raises RefusedError if llama.cpp does not load the file."""

    def __init__(self, path: Path, threads: int) -> None:
        llama_cpp_peer.start()
        self._threads = threads
        self._model = llama_cpp.llama_model_load_from_file(bytes(path), llama_cpp_peer.measured_model_params())
        if not self._model:
            raise RefusedError("llama.cpp does not load the file")
        self._vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(self._model))

    @contextmanager
    def context(
        self, n_tokens: int, *, call_tokens: int, pass_tokens: int, n_sequences: int = 1, kv_type: int | None = None
    ) -> Iterator[LlamaContext]:
        """Makes a context for sequences of `n_tokens`; a call takes `call_tokens`, a pass through the model fewer."""
        params = llama_cpp.llama_context_default_params()
        params.n_seq_max = n_sequences
        params.n_ctx = n_sequences * room_of(n_tokens)
        params.n_batch, params.n_ubatch = call_tokens, min(pass_tokens, call_tokens)
        params.n_threads = params.n_threads_batch = self._threads
        params.flash_attn_type = FLASH_ATTENTION
        if kv_type is not None:
            params.type_k = params.type_v = kv_type
        context = llama_cpp.llama_init_from_model(self._model, params)
        if not context:
            raise RefusedError(f"llama.cpp makes no context of {n_sequences} × {n_tokens} tokens")
        with ExitStack() as held:
            held.callback(llama_cpp.llama_free, context)
            batch = llama_cpp.llama_batch_init(call_tokens, 0, 1)
            held.callback(llama_cpp.llama_batch_free, batch)
            yield LlamaContext(context, batch, self._vocab_size)

    def close(self) -> None:
        """Frees the weights."""
        llama_cpp.llama_model_free(self._model)
