"""Products that share an input: terms, biases, tasks, the kernels that ran, the memory of a weight."""

from __future__ import annotations

import numpy as np
import pytest

from backend.gemm_families import BOUNDS, PANEL_TYPES
from imp_service import _testing as core
from support.kernels.bits import assert_same_bits
from support.kernels.weights import WEIGHT_TYPES, block_of, random_rows, random_weight
from support.oracles import tolerances


def term(dtype: str, n: int, k: int, bias: np.ndarray | None = None) -> tuple[str, np.ndarray, int, np.ndarray | None]:
    return dtype, random_weight(dtype, n, k).file, n, bias


@pytest.mark.parametrize("m", [1, 6, 40])
def test_gemm_7_hon_2_terms_share_an_input_and_launches_are_counted(m: int) -> None:
    k = 512
    x = random_rows(m, k)
    bias = np.random.default_rng(1).normal(0, 1, 50).astype(np.float32)
    terms = [term("q8_0", 130, k), term("q4_k", 50, k, bias), term("f16", 33, k), term("q8_0", 16, k)]
    outs, launches = core.gemm_linear(terms, x, core.ThreadPool(2))

    plans = [core.gemm_plan(core.cpu_caps("auto"), dtype, n, k)["kernels"] for dtype, _, n, _ in terms]
    expected: dict[str, int] = {}
    for (kernel,) in plans:
        expected[kernel["name"]] = expected.get(kernel["name"], 0) + 1
    assert launches == expected

    for (dtype, _, n, offset), (kernel,), out in zip(terms, plans, outs, strict=True):
        w = random_weight(dtype, n, k).values.astype(np.float64)
        wide = x.astype(np.float64)
        exact = wide @ w.T + (0 if offset is None else offset)
        bound = BOUNDS[kernel["activations"]](wide, w)
        rounding = tolerances.rounding_of_sum(1) * (np.abs(exact) + bound)  # of the bias
        assert (np.abs(out - exact) <= bound + rounding).all()
        with pytest.raises(AssertionError):
            np.testing.assert_array_less(np.abs(np.zeros_like(out) - exact), bound + rounding)


def test_gemm_4_an_override_is_what_runs() -> None:
    x = random_rows(3, 256)
    pool = core.ThreadPool(2)
    for pattern in ("q8_0", "w*"):
        (out,), launches = core.gemm_linear([term("q8_0", 40, 256)], x, pool, overrides=[(pattern, "reference")])
        assert launches == {"reference": 1}
        weight = random_weight("q8_0", 40, 256)
        assert_same_bits(out, core.gemm_run_kernel("reference", "q8_0", weight.file, 40, x))


def test_gemm_3_a_step_chooses_nothing() -> None:
    counts = core.gemm_steps_without_selection(random_weight("q8_0", 48, 64).file, 48, random_rows(3, 64), 1000)
    ran = [row["name"] for row, count in zip(core.gemm_kernels(), counts, strict=True) if count == 1000]
    assert ran == [core.gemm_plan(core.cpu_caps("auto"), "q8_0", 48, 64)["kernels"][0]["name"]]
    assert sum(counts) == 1000


@pytest.mark.long
@pytest.mark.parametrize("dtype", WEIGHT_TYPES)
@pytest.mark.parametrize("n_threads", [1, 2])
def test_gemm_12_one_copy_and_unpacking_gives_the_file(dtype: str, n_threads: int) -> None:
    elements, n_bytes = block_of(dtype)
    for n, blocks in ((1, 1), (37, 3), (4001, 2)):
        k = elements * blocks
        weight = random_weight(dtype, n, k)
        packed, rows, values = core.gemm_pack_and_unpack(dtype, weight.file, n, k, n_threads=n_threads)
        plan = core.gemm_plan(core.cpu_caps("auto"), dtype, n, k)
        n_rows = -(-n // 16) * 16 if dtype in PANEL_TYPES else n
        assert plan["layout"] == ("panel16" if dtype in PANEL_TYPES else "file")
        assert len(packed) == n_rows * n_bytes * blocks
        np.testing.assert_array_equal(rows.ravel(), weight.file)
        assert_same_bits(values, weight.values)
        assert np.array_equal(packed, weight.file) == (dtype not in PANEL_TYPES)


@pytest.mark.parametrize("n_threads", [1, 2, 3, 64])
def test_gemm_11_tasks_cover_every_output_once(n_threads: int) -> None:
    rng = np.random.default_rng(n_threads)
    for _ in range(200):
        sizes = [
            (int(n), int(cost)) for n, cost in zip(rng.integers(1, 20000, 4), rng.integers(1, 9000, 4), strict=True)
        ]
        tasks = core.gemm_split(sizes, n_threads)
        end, last_term = 0, 0
        for number, begin, stop in tasks:
            if number != last_term:
                assert end == sizes[last_term][0]
                end, last_term = 0, number
            assert begin == end
            assert begin % 16 == 0
            assert stop % 16 == 0 or stop == sizes[number][0]
            assert stop > begin
            end = stop
        assert (last_term, end) == (3, sizes[3][0])
        assert len(tasks) <= 32 * n_threads + len(sizes)
