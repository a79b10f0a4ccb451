"""Uses llama.cpp's library for images (libmtmd) through its Python package: returns the cells of a part."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from llama_cpp import llama_cpp, mtmd_cpp
from numpy.typing import NDArray

from support.models.tiny_tower import Pixels, TinyTower
from support.oracles.llama_cpp_peer import plain_model_params

_IMAGE = 1  # mtmd_input_chunk_type
_NO_FLASH_ATTENTION, _FLASH_ATTENTION_IF_USEFUL = 0, -1


@llama_cpp.llama_log_callback
def _silent(_level: int, _text: bytes, _user: Any) -> None:
    """Discards the progress that the library otherwise writes to stderr."""


def start() -> None:
    mtmd_cpp.mtmd_log_set(_silent, ctypes.c_void_p(0))


@contextmanager
def _context(projector: Path, model: Path, n_threads: int, flash_attention: int) -> Iterator[Any]:
    params = plain_model_params()
    params.use_mmap = False
    loaded = llama_cpp.llama_model_load_from_file(bytes(model), params)
    assert loaded, f"llama.cpp does not load {model}"
    options = mtmd_cpp.mtmd_context_params_default()
    options.use_gpu = options.warmup = options.print_timings = False
    options.n_threads = n_threads
    options.flash_attn_type = flash_attention
    context = mtmd_cpp.mtmd_init_from_file(bytes(projector), loaded, options)
    assert context, f"llama.cpp does not load {projector}"
    try:
        yield context
    finally:
        mtmd_cpp.mtmd_free(context)
        llama_cpp.llama_model_free(loaded)


@contextmanager
def _images(context: Any, pixels: Pixels) -> Iterator[list[Any]]:
    """Those that llama.cpp makes of a part: for tiles an overview, and the tile itself."""
    data = np.ascontiguousarray(pixels)
    height, width, _ = data.shape
    bitmap = mtmd_cpp.mtmd_bitmap_init(width, height, data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8)))
    chunks = mtmd_cpp.mtmd_input_chunks_init()
    marker = mtmd_cpp.mtmd_default_marker()
    text = mtmd_cpp.mtmd_input_text(marker, len(marker), False, True)
    bitmaps = (mtmd_cpp.mtmd_bitmap_p_ctypes * 1)(bitmap)
    try:
        assert mtmd_cpp.mtmd_tokenize(context, chunks, ctypes.byref(text), bitmaps, 1) == 0
        each = (mtmd_cpp.mtmd_input_chunks_get(chunks, i) for i in range(mtmd_cpp.mtmd_input_chunks_size(chunks)))
        yield [chunk for chunk in each if mtmd_cpp.mtmd_input_chunk_get_type(chunk) == _IMAGE]
    finally:
        mtmd_cpp.mtmd_input_chunks_free(chunks)
        mtmd_cpp.mtmd_bitmap_free(bitmap)


def cells_of(tower: TinyTower, projector: Path, model: Path, pixels: Pixels) -> list[NDArray[np.float64]]:
    """Returns those of each image that llama.cpp makes of a part."""
    with _context(projector, model, 1, _NO_FLASH_ATTENTION) as context, _images(context, pixels) as images:
        return [_encoded(context, chunk, tower) for chunk in images]


@contextmanager
def encoding(tower: TinyTower, projector: Path, model: Path, n_threads: int) -> Iterator[Callable[[], Any]]:
    """Yields a function that encodes a part, as llama.cpp does by default, and returns its cells."""
    start()
    llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))
    with (
        _context(projector, model, n_threads, _FLASH_ATTENTION_IF_USEFUL) as context,
        _images(context, tower.pixels()) as images,
    ):
        yield lambda: _encoded(context, images[-1], tower)


def _encoded(context: Any, chunk: Any, tower: TinyTower) -> NDArray[np.float64]:
    n_cells = mtmd_cpp.mtmd_input_chunk_get_n_tokens(chunk)
    assert n_cells == tower.n_cells
    assert mtmd_cpp.mtmd_encode_chunk(context, chunk) == 0
    found = np.ctypeslib.as_array(mtmd_cpp.mtmd_get_output_embd(context), (n_cells, tower.width))
    return found.astype(np.float64)
