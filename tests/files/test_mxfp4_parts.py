"""The two tensors of a weight of 4-bit floats in safetensors: a refusal names those that do not fit together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.mxfp4_checkpoint import Parts, in_gguf, random_parts, write

CONFIG = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss"}


def parts() -> Parts:
    return random_parts("experts.down_proj", (2, 5, 96))


def refusal(folder: Path, tensors: Parts) -> tuple[str, str]:
    with pytest.raises(_core.ModelError) as info:
        _core.open_model_file(write(folder, CONFIG, tensors))
    return info.value.reason, info.value.message


def test_mod_24_both_parts_become_one_tensor(tmp_path: Path) -> None:
    tensors = parts()
    file = _core.open_model_file(write(tmp_path, CONFIG, tensors))
    [tensor] = file.tensors
    assert (tensor.name, tensor.dtype, tensor.shape) == ("experts.down_proj", "mxfp4", (96, 5, 2))
    raw = core.read_tensor(file, tensor.name)
    assert raw == in_gguf(*tensors.values()).tobytes()
    assert raw != in_gguf(tensors["experts.down_proj_blocks"][:, ::-1], tensors["experts.down_proj_scales"]).tobytes()


@pytest.mark.parametrize("missing", ["_blocks", "_scales"])
def test_mod_24_a_part_without_the_other_is_refused(missing: str, tmp_path: Path) -> None:
    tensors = {name: part for name, part in parts().items() if not name.endswith(missing)}
    reason, message = refusal(tmp_path, tensors)
    assert reason == "MODEL_TENSOR"
    assert f"tensor experts.down_proj{missing}: missing, expected a tensor of U8" in message


@pytest.mark.parametrize("part", ["_blocks", "_scales"])
def test_mod_24_parts_that_do_not_fit_are_refused(part: str, tmp_path: Path) -> None:
    tensors = parts()
    tensors[f"experts.down_proj{part}"] = tensors[f"experts.down_proj{part}"][:, 1:]
    reason, message = refusal(tmp_path, tensors)
    assert reason == "MODEL_SHAPE"
    assert "expected 16 bytes for each of the exponents of shape" in message


def test_mod_24_a_part_of_another_type_is_refused(tmp_path: Path) -> None:
    tensors = parts()
    tensors["experts.down_proj_scales"] = tensors["experts.down_proj_scales"].astype(np.float32)
    assert refusal(tmp_path, tensors)[0] == "MODEL_TENSOR"


def test_mod_24_the_weight_itself_beside_its_parts_is_refused(tmp_path: Path) -> None:
    tensors = parts() | {"experts.down_proj": np.zeros((2, 5, 96), np.float32)}
    reason, message = refusal(tmp_path, tensors)
    assert reason == "MODEL_DUPLICATE"
    assert "experts.down_proj: exists together with experts.down_proj_blocks" in message


def test_mod_24_bytes_of_another_kind_are_refused(tmp_path: Path) -> None:
    reason, message = refusal(tmp_path, {"model.codes": np.zeros((2, 16), np.uint8)})
    assert reason == "MODEL_UNSUPPORTED"
    assert "tensor model.codes: type U8, supported are F32, F16, BF16, F8_E4M3, and U8 for MXFP4" in message


def test_mod_24_the_exponent_of_nan_is_found_when_it_is_read(tmp_path: Path) -> None:
    tensors = parts()
    tensors["experts.down_proj_scales"][1, 2, 1] = 255
    file = _core.open_model_file(write(tmp_path, CONFIG, tensors))
    with pytest.raises(_core.ModelError) as info:
        core.read_tensor(file, "experts.down_proj")
    assert info.value.reason == "MODEL_NONFINITE"
    assert "tensor experts.down_proj_scales: element 22 is NaN" in info.value.message
