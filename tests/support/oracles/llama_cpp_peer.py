"""Uses llama.cpp through its Python package: quantizes GGUF files and returns logits to compare with."""

from __future__ import annotations

import atexit
import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import TextIOBase
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import _utils as llama_cpp_files
from numpy.typing import NDArray

FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q8_0": 7, "q4_k_m": 15, "bf16": 32}  # llama_ftype
# Without its extra buffer types, llama.cpp also loads Q4_0 and a few more types without repacking them.
AMX_NOTE = (
    "it was built with kernels for AMX, which crash on some shapes, so it runs without them and without repacked "
    "weights; build it with CFLAGS and CXXFLAGS of -mno-amx-tile -mno-amx-int8 -mno-amx-bf16 to measure it at its best"
)
_F32 = 0  # ggml_type
_NO_FLASH_ATTENTION = 0


@llama_cpp.llama_log_callback
def _silent(_level: int, _text: bytes, _user: Any) -> None:
    """Discards the progress that llama.cpp otherwise writes to stderr."""


def start() -> None:
    # The package opens files on import and does not close them, which the interpreter reports at its end.
    for file in vars(llama_cpp_files).values():
        if isinstance(file, TextIOBase):
            atexit.register(file.close)
    llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
    llama_cpp.llama_backend_init()


def quantize(source: Path, target: Path, file_type: str) -> Path:
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = FILE_TYPES[file_type]
    params.nthread = 1
    params.allow_requantize = True
    result = llama_cpp.llama_model_quantize(bytes(source), bytes(target), ctypes.byref(params))
    assert result == 0, f"llama.cpp does not quantize {source} to {file_type}"
    return target


def plain_model_params() -> Any:
    """Returns llama.cpp's default parameters without kernels for AMX, which crash on some shapes (its issue 20824)."""
    params = llama_cpp.llama_model_default_params()
    params.use_extra_bufts = False
    return params


def measured_model_params() -> Any:
    """Returns llama.cpp's default parameters, which use its fastest kernels that do not crash: see AMX_NOTE."""
    return plain_model_params() if has_amx() else llama_cpp.llama_model_default_params()


def has_amx() -> bool:
    """Returns whether llama.cpp was built with kernels for AMX and runs them here."""
    return b"AMX" in llama_cpp.llama_print_system_info()


@contextmanager
def _context(path: Path, n_tokens: int, *, makes_vectors: bool = False) -> Iterator[tuple[Any, Any]]:
    """A context, and the model in it."""
    model_params = plain_model_params()
    model_params.use_mmap = False
    model = llama_cpp.llama_model_load_from_file(bytes(path), model_params)
    assert model, f"llama.cpp does not load {path}"
    params = llama_cpp.llama_context_default_params()
    params.n_ctx = params.n_batch = params.n_ubatch = max(256, n_tokens)
    params.n_threads = params.n_threads_batch = 1
    params.type_k = params.type_v = _F32
    params.flash_attn_type = _NO_FLASH_ATTENTION
    params.embeddings = makes_vectors
    context = llama_cpp.llama_init_from_model(model, params)
    try:
        yield context, model
    finally:
        llama_cpp.llama_free(context)
        llama_cpp.llama_model_free(model)


@contextmanager
def _batch(tokens: Sequence[int]) -> Iterator[Any]:
    """All rows of one sequence."""
    batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
    batch.n_tokens = len(tokens)
    for i, token in enumerate(tokens):
        batch.token[i], batch.pos[i], batch.n_seq_id[i], batch.logits[i] = token, i, 1, 1
        batch.seq_id[i][0] = 0
    try:
        yield batch
    finally:
        llama_cpp.llama_batch_free(batch)


def logits(path: Path, tokens: Sequence[int]) -> NDArray[np.float64]:
    """Returns the logits of all rows of one sequence, evaluated in one batch."""
    with _context(path, len(tokens)) as (context, model), _batch(tokens) as batch:
        vocab_size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
        assert llama_cpp.llama_decode(context, batch) == 0
        rows = np.ctypeslib.as_array(llama_cpp.llama_get_logits(context), (len(tokens), vocab_size))
        return rows.astype(np.float64)


def vectors(path: Path, texts: Sequence[Sequence[int]]) -> NDArray[np.float64]:
    """Returns the vector of each text, by the pooling that the file names."""
    with _context(path, max(map(len, texts)), makes_vectors=True) as (context, model):
        found = []
        for tokens in texts:
            with _batch(tokens) as batch:
                assert llama_cpp.llama_encode(context, batch) == 0
            width = (llama_cpp.llama_model_n_embd(model),)
            found.append(np.ctypeslib.as_array(llama_cpp.llama_get_embeddings_seq(context, 0), width).copy())
        return np.array(found, np.float64)
