"""Checkpoints with weights of E4M3: every scheme gives the logits of the weights that it says, on every device."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.float8_checkpoint import SCHEMES, Float8Model, float8_tiny, write
from support.kernels.devices import GPU_KINDS
from support.models.forward_runs import distance, load, logits, prompt, rms_distance
from support.oracles.forward_bounds import float16_products_bound, float32_bound

FAMILIES = ["llama", "qwen2moe", "qwen3", "qwen3moe", "mixtral"]


def model_of(family: str, scheme: str, **changes: Any) -> Float8Model:
    if family == "mixtral":
        return float8_tiny("llama", scheme, n_experts=4, **changes)
    return float8_tiny(family, scheme, **changes)


def path_of(folder: Path) -> Path:
    return folder / "model.safetensors"


def refusal(path: Path) -> tuple[str, str]:
    with pytest.raises(_core.ModelError) as info:
        load(path, path.parent)
    return info.value.reason, info.value.message


# What they hold.


@pytest.mark.few(3)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_mod_24_weights_are_codes_times_scales(scheme: str, tmp_path: Path) -> None:
    """To the bit, of every tensor, in reads of any length."""
    model = float8_tiny("qwen3", scheme)
    file = _core.open_model_file(model.write(path_of(tmp_path)))
    tensors = {tensor.name: tensor for tensor in file.tensors}
    assert not any(name.endswith(("_scale", "_scale_inv")) for name in tensors)
    name = "model.layers.1.mlp.down_proj.weight"
    values = model.tensors()["blk.1.ffn_down.weight"].values
    assert (tensors[name].dtype, tensors[name].shape) == ("f8_e4m3", values.shape[::-1])
    raw = core.read_tensor(file, name)
    np.testing.assert_array_equal(core.dequantize("f8_e4m3", raw), values.ravel())
    assert len(raw) == tensors[name].n_bytes == values.size // 64 * 68
    pieces = [core.read_tensor(file, name, at, min(1001, len(raw) - at)) for at in range(0, len(raw), 1001)]
    assert b"".join(pieces) == raw
    file.check()


@pytest.mark.few(3)
@pytest.mark.parametrize("scheme", SCHEMES)
def test_mod_24_every_scheme_gives_the_logits_of_its_weights(scheme: str, tmp_path: Path) -> None:
    model = float8_tiny("qwen3", scheme)
    loaded = load(model.write(path_of(tmp_path)), tmp_path, kv_dtype="f32")
    tokens = prompt(70, model.vocab_size)
    got, bound = logits(loaded, tokens), float32_bound(model)
    assert loaded.warnings == []
    assert distance(got, model.oracle().logits(tokens)) < bound
    # Weights that were not rounded are others, and so are those of another scheme.
    plain = dataclasses.replace(model, scheme=SCHEMES["small_blocks" if scheme != "small_blocks" else "tensor"])
    assert distance(got, plain.oracle().logits(tokens)) > 100 * bound


@pytest.mark.long
@pytest.mark.parametrize("scheme", ["blocks", "small_blocks", "channels"])
@pytest.mark.parametrize("family", FAMILIES)
def test_mod_24_every_family_has_them(family: str, scheme: str, tmp_path: Path) -> None:
    """This includes families that reorder rows of q and k, and experts."""
    model = model_of(family, scheme)
    loaded = load(model.write(path_of(tmp_path)), tmp_path, kv_dtype="f32")
    tokens = prompt(30, model.vocab_size)
    assert loaded.warnings == []
    assert distance(logits(loaded, tokens), model.oracle().logits(tokens)) < float32_bound(model)


def float16_weights_bound(model: Float8Model) -> float:
    """Weights and their scales are rounded to float16, as the inputs are: the bound doubles."""
    return 2 * float16_products_bound(model)


@pytest.mark.long
@pytest.mark.parametrize("device", GPU_KINDS)
@pytest.mark.parametrize(
    ("family", "scheme"), [("qwen3", "blocks"), ("llama", "channels"), ("mixtral", "small_blocks")]
)
def test_mod_24_gpus_have_kernels_of_their_own_for_them(device: str, family: str, scheme: str, tmp_path: Path) -> None:
    model = model_of(family, scheme)
    loaded = load(model.write(path_of(tmp_path)), tmp_path, device=device)
    for n_tokens in (3, 70):
        tokens = prompt(n_tokens, model.vocab_size)
        got, expected = logits(loaded, tokens), model.oracle().logits(tokens)
        assert rms_distance(got, expected) < float16_weights_bound(model)
        other = dataclasses.replace(model, seed=1).oracle().logits(tokens)
        assert rms_distance(got, other) > 10 * float16_weights_bound(model)
    ran = {name for name, count in loaded.launches.items() if count}
    assert "f8_e4m3_mma" in ran
    assert not ran.isdisjoint({"f8_e4m3_hmma", "f8_e4m3_wgmma"})


WITHOUT_EFFECT = [
    "mlp.up_proj.input_scale",
    "mlp.up_proj.input_scale_ub",
    "mlp.up_proj.act_scale",
    "mlp.up_proj.activation_scale",
    "mlp.up_proj.output_scale",
    "self_attn.q_scale",
    "self_attn.k_proj.k_scale",
    "self_attn.attn.v_scale",
    "self_attn.kv_scale",
]


def test_mod_24_scales_of_activations_and_of_the_cache_are_without_effect(tmp_path: Path) -> None:
    """The test uses every name that checkpoints have for them. A further tensor next to a weight is refused."""
    model = float8_tiny("llama", "tensor")
    tokens = prompt(9, model.vocab_size)
    expected = logits(load(model.write(path_of(tmp_path)), tmp_path), tokens)
    parts = model.parts()
    for name in WITHOUT_EFFECT:
        parts[f"model.layers.0.{name}"] = ("F32", [1], np.full(1, 3, np.float32).tobytes())
    path = write(path_of(tmp_path), model.config(), parts)
    np.testing.assert_array_equal(logits(load(path, tmp_path), tokens), expected)
    parts["model.layers.0.self_attn.other_scale"] = parts["model.layers.0.self_attn.kv_scale"]
    with pytest.raises(_core.ModelError, match="other_scale"):
        load(write(path_of(tmp_path), model.config(), parts), tmp_path)


def test_mod_24_what_is_not_converted_stays_as_it_is(tmp_path: Path) -> None:
    """One projection of each layer is bfloat16: a module named in modules_to_not_convert."""
    model = float8_tiny("llama", "blocks")
    parts = model.parts()
    for name in [name for name in parts if ".down_proj.weight" in name]:
        if name.endswith("_scale_inv"):
            del parts[name]
        else:
            shape = parts[name][1]
            values = np.full(shape, 0.01, np.float32).view(np.uint32) >> 16
            parts[name] = ("BF16", shape, values.astype(np.uint16).tobytes())
    loaded = load(write(path_of(tmp_path), model.config(), parts), tmp_path)
    types = {weight["tensor"].split(".", 3)[-1]: weight["dtype"] for weight in loaded.weights}
    assert types["mlp.down_proj.weight"] == "bf16"
    assert types["mlp.up_proj.weight"] == "f8_e4m3"


def test_mod_23_packed_weights_are_read_back(tmp_path: Path) -> None:
    """With their scales: the second start finds what the first has written."""
    model = float8_tiny("llama", "blocks")
    path = model.write(path_of(tmp_path))
    os.utime(path, (1e9, 1e9))  # a file that was changed just now is not believed
    tokens = prompt(9, model.vocab_size)
    outs = []
    for is_there in (False, True):
        loaded = _core.Model.load(
            _core.open_model_file(path), max_rows=16, max_logits_rows=16, kv_bytes=1 << 20, packed_cache=tmp_path / "p"
        )
        assert loaded.packed["was_read"] == is_there
        outs.append(logits(loaded, tokens))
        assert is_there or loaded.write_packed(lambda: True)
    np.testing.assert_array_equal(*outs)


def test_mod_23_packed_weights_are_of_the_pieces_that_the_configuration_says(tmp_path: Path) -> None:
    """It is none of the model's files: pieces of another size can have as many scales, for other weights."""
    model = float8_tiny("llama", "blocks")
    path = model.write(path_of(tmp_path))
    os.utime(path, (1e9, 1e9))

    def start() -> Any:
        return _core.Model.load(
            _core.open_model_file(path), max_rows=16, max_logits_rows=16, kv_bytes=1 << 20, packed_cache=tmp_path / "p"
        )

    tokens = prompt(9, model.vocab_size)
    assert start().write_packed(lambda: True)
    first = start()
    assert first.packed["was_read"]
    config = json.loads((tmp_path / "config.json").read_text())
    config["quantization_config"]["weight_block_size"] = [112, 128]
    (tmp_path / "config.json").write_text(json.dumps(config))
    other = start()
    assert not other.packed["was_read"]
    assert not np.array_equal(logits(first, tokens), logits(other, tokens))


# What they cannot be.


def changed(folder: Path, scheme: str = "blocks", **changes: Any) -> Path:
    """A checkpoint with other entries for the scales of one weight: None is none."""
    model = float8_tiny("llama", scheme, n_layers=1)
    parts = model.parts()
    for ending, part in changes.items():
        name = f"model.layers.0.mlp.up_proj.{ending}"
        if part is None:
            del parts[name]
        else:
            parts[name] = part
    return write(path_of(folder), model.config(), parts)


def floats(*shape: int, fill: float = 1.0) -> tuple[str, list[int], bytes]:
    return "F32", list(shape), np.full(shape, fill, np.float32).tobytes()


SCALES = "weight_scale_inv"
WHERE = "model.safetensors: tensor model.layers.0.mlp.up_proj."
FAULTS: list[tuple[dict[str, Any], str, str]] = [
    ({SCALES: None}, "MODEL_TENSOR", f"{WHERE}weight_scale: missing, and so is model.layers.0.mlp.up_proj.{SCALES}"),
    ({"weight_scale": floats(1)}, "MODEL_TENSOR", f"{WHERE}weight_scale: exists together with"),
    (
        {SCALES: floats(2, 3)},
        "MODEL_SHAPE",
        f"{WHERE}{SCALES}: shape [3, 2], expected one of [1], [1, 320], [2, 3] for",
    ),
    ({SCALES: floats(320, 2)}, "MODEL_SHAPE", "shape [2, 320]"),
    ({SCALES: floats(3, 2, 1)}, "MODEL_SHAPE", "shape [1, 2, 3]"),
    ({SCALES: floats(0)}, "MODEL_SHAPE", "shape [0]"),
    ({SCALES: floats(0, 2)}, "MODEL_SHAPE", "shape [2, 0]"),
    ({SCALES: floats(3, 2, fill=np.nan)}, "MODEL_NONFINITE", f"{WHERE}{SCALES}: element 0 is NaN"),
    ({SCALES: floats(3, 2, fill=-np.inf)}, "MODEL_NONFINITE", "element 0 is infinite, expected a finite scale"),
    ({SCALES: floats(3, 2, fill=1e-31)}, "MODEL_VALUE", "element 0 is too small, expected 0 or a scale from 2^-100"),
    ({SCALES: floats(3, 2, fill=-2e30)}, "MODEL_VALUE", "element 0 is too large"),
    ({SCALES: ("F8_E4M3", [3, 2], bytes(6))}, "MODEL_TENSOR", ""),
    ({"weight": ("F8_E4M3", [320, 191], bytes(320 * 191))}, "MODEL_SHAPE", "shape [191, 320] of F8_E4M3"),
    (
        {"weight": ("F8_E4M3", [320 * 192], bytes(320 * 192))},
        "MODEL_SHAPE",
        "expected a matrix with rows of a multiple",
    ),
    ({"weight": ("F8_E4M3", [0, 192], b"")}, "MODEL_SHAPE", "shape [192, 0]"),
    ({"weight": ("F8_E5M2", [320, 192], bytes(320 * 192))}, "MODEL_UNSUPPORTED", "F8_E5M2, supported are F32, F16"),
    ({"weight": ("F8_E4M3", [256, 192], bytes(256 * 192)), SCALES: floats(2, 2)}, "MODEL_TENSOR", "shape [192, 256]"),
]


@pytest.mark.few(8)
@pytest.mark.parametrize(("changes", "reason", "words"), FAULTS)
def test_mod_24_faults_are_refused_where_they_are(
    changes: dict[str, Any], reason: str, words: str, tmp_path: Path
) -> None:
    got, message = refusal(changed(tmp_path, **changes))
    assert (got, words in message) == (reason, True), message


@pytest.mark.parametrize("code", [0x7F, 0xFF])
def test_mod_24_codes_that_are_nan_are_refused(code: int, tmp_path: Path) -> None:
    codes = np.zeros((320, 192), np.uint8)
    codes[2, 5] = code
    path = changed(tmp_path, weight=("F8_E4M3", [320, 192], codes.tobytes()))
    expected = f"{WHERE}weight: element {2 * 192 + 5} is NaN, expected finite weights"
    assert refusal(path) == ("MODEL_NONFINITE", expected)
    with pytest.raises(_core.ModelError, match="is NaN"):
        _core.open_model_file(path).check()


def test_mod_24_scales_of_zero_are_fine(tmp_path: Path) -> None:
    path = changed(tmp_path, **{SCALES: floats(3, 2, fill=0.0)})
    assert np.isfinite(logits(load(path, tmp_path), [1, 2, 3])).all()


GROUP = "quantization_config.config_groups.group_0.weights"
METHODS: list[tuple[dict[str, Any], str]] = [
    ({"quant_method": "awq"}, "quant_method: awq, expected one of fp8, fbgemm_fp8, compressed-tensors, modelopt"),
    ({"bits": 4}, "quant_method: missing"),
    ({"quant_method": "fp8", "fmt": "e5m2"}, "fmt: e5m2, expected e4m3"),
    ({"quant_method": "fp8", "weight_block_size": [128, 96]}, "weight_block_size: 128 x 96, expected rows and columns"),
    ({"quant_method": "fp8", "weight_block_size": [128]}, "weight_block_size: 128, expected"),
    ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size: 0 x 128, expected"),
    ({"quant_method": "modelopt", "quant_algo": "NVFP4"}, "quant_algo: NVFP4, expected FP8"),
    ({"quant_method": "compressed-tensors", "format": "pack-quantized"}, "format: pack-quantized, expected float-"),
    ({"quant_method": "compressed-tensors"}, "config_groups: none with weights"),
]


@pytest.mark.few(4)
@pytest.mark.parametrize(("config", "words"), METHODS)
def test_mod_24_other_schemes_are_refused_by_name(config: dict[str, Any], words: str, tmp_path: Path) -> None:
    """Whether or not a tensor is of eight bits."""
    model = float8_tiny("llama", "channels", n_layers=1)
    for parts in (model.parts(), {name: part for name, part in model.parts().items() if part[0] == "F32"}):
        path = write(path_of(tmp_path), model.config() | {"quantization_config": config}, parts)
        reason, message = refusal(path)
        assert (reason, words in message) == ("MODEL_UNSUPPORTED", True), message


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"type": "int"}, f"{GROUP}.type: int, expected float"),
        ({"num_bits": 4}, f"{GROUP}.num_bits: 4, expected 8"),
        ({"strategy": "group"}, f"{GROUP}.strategy: group, expected tensor, channel or block"),
    ],
)
def test_mod_24_groups_of_other_weights_are_refused(change: dict[str, Any], words: str, tmp_path: Path) -> None:
    model = float8_tiny("llama", "channels", n_layers=1)
    config = model.config()
    groups = config["quantization_config"]["config_groups"]
    weights = groups["group_0"]["weights"] | change
    config["quantization_config"] = config["quantization_config"] | {"config_groups": {"group_0": {"weights": weights}}}
    reason, message = refusal(write(path_of(tmp_path), config, model.parts()))
    assert (reason, words in message) == ("MODEL_UNSUPPORTED", True), message
