"""Reports once, among the skips, whether the GPU tests had a GPU."""

from __future__ import annotations

import pytest

from imp_service import _core
from support.kernels.devices import GPU_IS_REQUIRED, GPU_KINDS


def test_hon_19_tests_for_gpus_had_a_gpu() -> None:
    """If a GPU is required and missing, no test starts."""
    name, refusal, _ = _core.find_gpu()
    if refusal:
        assert (GPU_KINDS, GPU_IS_REQUIRED) == (["cuda_emulated"], False)
        pytest.skip(f"no GPU: {refusal}; the tests for GPUs ran on the emulated one alone")
    assert name
    assert "cuda" in GPU_KINDS
