"""A GPU without compiled code is refused before a load, and no kernel without code for the GPU is chosen."""

from __future__ import annotations

import pytest

from imp_service import _core
from imp_service import _testing as core


@pytest.mark.parametrize(
    ("images", "capability", "serves", "wgmma"),
    [
        ("90a-real", 90, True, True),
        ("90a-real", 80, False, False),
        ("90a-real", 100, False, False),
        ("90-real", 90, True, False),  # Hopper without the instructions of 90a
        ("90a", 90, True, True),
        ("90a", 100, False, False),
        ("90", 120, True, False),
        ("80-real", 80, True, False),
        ("80-real", 86, True, False),  # same generation
        ("86-real", 80, False, False),
        ("80-real", 90, False, False),
        ("80-virtual", 90, True, False),
        ("80-real 90a-real", 90, True, True),
        ("80-real 90a-real", 89, True, False),
        ("80-real 90a-real", 120, False, False),
        ("100f-real", 103, True, False),
        ("100f", 120, False, False),
        ("", 90, False, False),
    ],
)
def test_what_a_build_has_code_for(images: str, capability: int, serves: bool, wgmma: bool) -> None:
    assert core.gpu_images_serve(images, capability) == (serves, wgmma)


def test_a_gpu_of_another_kind_is_missing_not_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IMP_EMULATED_GPU", "only_90a")
    core.Device(kind="cuda_emulated")
    monkeypatch.setenv("IMP_EMULATED_GPU", "only_90a compute_capability=86")
    with pytest.raises(_core.DeviceError) as caught:
        core.Device(kind="cuda_emulated")
    assert caught.value.reason == "DEVICE_MISSING"
    assert "has compute capability 8.6, expected a GPU that this build supports: 90a-real" in caught.value.message
