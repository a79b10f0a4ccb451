"""Weights on their way to the GPU: read in whole strips, reported as progress, and abandoned after an exception."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.devices import GPU_KINDS
from support.kernels.weights import random_weight

each_kind = pytest.mark.parametrize("kind", GPU_KINDS)

SHAPES = [("q8_0", 1000, 4096), ("f32", 7, 65), ("iq2_s", 333, 2560), ("q8_0", 1, 32), ("bf16", 900, 11000)]


def reader(weights: list[np.ndarray]) -> Callable[[int, int, int], bytes]:
    return lambda which, first, n: weights[which][first : first + n].tobytes()


def rows_of(shapes: list[tuple[str, int, int]]) -> list[np.ndarray]:
    return [random_weight(dtype, n, k).file.reshape(n, -1) for dtype, n, k in shapes]


@pytest.mark.long
@pytest.mark.parametrize("threads", [1, 3])
@each_kind
def test_gemm_12_each_row_is_read_once_in_whole_strips(kind: str, threads: int) -> None:
    device = core.Device(kind=kind, n_threads=threads)
    weights = rows_of(SHAPES)
    read = reader(weights)
    asked: list[tuple[int, int, int]] = []
    told: list[int] = []

    def note(which: int, first: int, n: int) -> bytes:
        asked.append((which, first, n))
        return read(which, first, n)

    device.load_linears(SHAPES, note, told.append)
    assert sum(told) == sum(weight.nbytes for weight in weights)
    for which, (_, n_rows, _) in enumerate(SHAPES):
        end = 0
        for number, first, n in sorted(asked):
            if number != which:
                continue
            assert first == end
            assert first % 16 == 0
            end = first + n
            assert n % 16 == 0 or end == n_rows
        assert end == n_rows


@pytest.mark.long
@each_kind
def test_gemm_12_more_than_is_staged_at_once_arrives(kind: str) -> None:
    """Loads 97 MiB, in which every row contains its number."""
    device = core.Device(kind=kind, n_threads=2)
    n, k = 7777, 3270
    values = np.broadcast_to(np.arange(n, dtype=np.float32)[:, None], (n, k)).copy()
    tokens = np.array([0, 1, 15, 16, 4000, 4001, n - 1], np.int32)
    actual = device.embed(tokens, "f32", values.view(np.uint8).ravel(), n, k)
    assert_same_bits(actual, values[tokens])


def raises(error: Exception) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


@each_kind
def test_mod_2_what_reading_throws_ends_the_load(kind: str) -> None:
    device = core.Device(kind=kind, n_threads=3)
    weights = rows_of(SHAPES[:2])
    with pytest.raises(RuntimeError, match="no more"):
        device.load_linears(SHAPES[:2], raises(RuntimeError("no more")), lambda _: None)
    with pytest.raises(KeyError):
        device.load_linears(SHAPES[:2], reader(weights), raises(KeyError("stop")))
    sizes = device.load_linears(SHAPES[:2], reader(weights), lambda _: None)
    assert len(sizes) == 2


@pytest.mark.parametrize(
    "shape", [("q8_0", 0, 32), ("q8_0", 4, 33), ("q4_k", 4, 0), ("f32", -1, 8), ("f32", 1 << 60, 8)]
)
@each_kind
def test_mod_2_a_shape_that_cannot_be_is_refused(kind: str, shape: tuple[str, int, int]) -> None:
    device = core.Device(kind=kind)
    with pytest.raises(_core.ModelError, match="expected rows of whole blocks"):
        device.load_linears([shape], raises(AssertionError()), lambda _: None)


@each_kind
def test_gemm_6_a_matrix_of_no_elements_is_no_request(kind: str) -> None:
    assert core.Device(kind=kind).load_linears([], raises(AssertionError()), lambda _: None) == []
