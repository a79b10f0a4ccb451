"""The bench of kernels and the probes: what they count. No test checks times."""

from __future__ import annotations

import math

import pytest

from backend.gemm_families import CASES
from imp_service import _core
from imp_service import _testing as core
from support.kernels.weights import block_of

LISTED = {row["name"] for row in core.gemm_kernels()}
MEASURED = [case for case in CASES if case[1] in ("bf16", "q8_0", "q6_k") and case[0] in LISTED]


@pytest.mark.parametrize(("kernel", "weight"), MEASURED)
def test_gemm_1_the_name_is_the_bench_row(kernel: str, weight: str) -> None:
    elements, n_bytes = block_of(weight)
    k = 512
    row = core.bench_gemm(kernel, weight, m=3, n=96, k=k, total_bytes=500_000, seconds=0, pool=core.ThreadPool(2))
    assert row["ops"] == 2 * 3 * 96 * k
    assert row["bytes"] == 96 * k // elements * n_bytes
    assert row["seconds"] == []  # no time, so no measurement and no report


def test_gemm_4_the_bench_refuses_as_a_load_does() -> None:
    with pytest.raises(_core.InvalidArgument, match="kernel: no q8_0_avx3"):
        core.bench_gemm("q8_0_avx3", "q8_0", 1, 16, 32, 0, 0, core.ThreadPool(1))


@pytest.mark.parametrize("isa", core.isas_here())
def test_hon_15_every_instruction_set_has_its_ceilings(isa: str) -> None:
    rates = core.probe(core.ThreadPool(2), isa, 0.0001)
    assert sorted(rates) == ["bf16_ops_per_s", "f32_ops_per_s", "int8_ops_per_s", "read_bytes_per_s"]
    assert all(math.isfinite(rate) for rate in rates.values())
