"""The banner: imp says nothing of a GPU on a machine without one, and imp doctor gives the reason once."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from imp_service.core import device

Call = Callable[..., tuple[int, str, str]]
ABSENT = "no NVIDIA driver here: cudaErrorInsufficientDriver (35)"
RUN = ("run", "Once", "--max-tokens", "1")


@pytest.fixture
def cuda_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str | None, str], None]:
    """Returns a function that sets the contents of the driver's file, and the reply of a CUDA build."""

    def make(driver: str | None, refusal: str) -> None:
        path = tmp_path / "driver"
        if driver is not None:
            path.write_text(f"{driver}\nGCC version\n")
        monkeypatch.setattr(device, "NVIDIA_DRIVER", str(path).lstrip("/"))
        monkeypatch.setattr("imp_service._core.find_gpu", lambda: ("", refusal, False))

    return make


def test_l20_a_machine_without_a_gpu_hears_nothing_of_cuda(
    call: Call, cuda_build: Callable[[str | None, str], None]
) -> None:
    cuda_build(None, ABSENT)
    status, _, stderr = call(*RUN)
    assert status == 0
    assert "CPU: " in stderr and "GPU" not in stderr and "cuda" not in stderr.lower()


def test_l20_doctor_says_once_why_there_is_no_gpu(call: Call, cuda_build: Callable[[str | None, str], None]) -> None:
    cuda_build(None, ABSENT)
    out = call("doctor", "--json")[1]
    (gpu,) = (check for check in json.loads(out)["checks"] if check["id"] == "gpu")
    assert gpu["message"] == f"none used: {ABSENT}"
    assert out.count("cudaError") == out.count("NVIDIA") == 1


def test_l20_where_there_is_a_driver_the_banner_points_to_doctor(
    call: Call, cuda_build: Callable[[str | None, str], None]
) -> None:
    cuda_build("NVRM version: 580.1", "the GPU does not answer: cudaErrorUnknown (999)")
    assert "  GPU: not used (imp doctor says why)\n" in call(*RUN)[2]
    assert "  GPU: not used (device.kind is cpu)\n" in call(*RUN, "--set", "device.kind=cpu")[2]
    assert "(NVRM version: 580.1)" in call("doctor")[1]
