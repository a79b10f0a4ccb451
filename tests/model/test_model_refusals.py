"""Checkpoints whose hyper-parameters no model can have: each is refused with its reason, naming the key."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files import gguf_writer
from support.files.gguf_contents import GgufContents
from support.models.text_cases import CASES as TEXT_CASES
from support.models.tiny_families import TRAITS
from support.models.tiny_models import FAMILIES, TinyModel, tiny

REQUIRED = (
    "block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
    "attention.layer_norm_rms_epsilon",
)  # fmt: skip
NAN, INF = float("nan"), float("inf")


def refusal(contents: GgufContents, folder: Path) -> tuple[str, str]:
    """The reason and the message with which a checkpoint is refused."""
    file = _core.open_model_file(contents.write(folder / "m.gguf"))
    with pytest.raises(_core.ModelError) as info:
        _core.inspect_model(file)
    return info.value.reason, info.value.message


def changed(model: TinyModel, **keys: Any) -> GgufContents:
    """Keys of the architecture, with __ for a dot; None removes one."""
    contents = model.contents()
    for name, value in keys.items():
        key = f"{model.architecture}.{name.replace('__', '.')}"
        if value is None:
            del contents.keys[key]
        else:
            contents.keys[key] = value
    return contents


@pytest.mark.few(15)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_intact_model_is_not_refused(family: str, tmp_path: Path) -> None:
    file = _core.open_model_file(tiny(family).write(tmp_path / "m.gguf"))
    model = _core.inspect_model(file)
    assert (model["architecture"], model["warnings"]) == (family, [])


def test_m19_mod_7_architecture(tmp_path: Path) -> None:
    contents = tiny("llama").contents()
    contents.keys["general.architecture"] = "nosuch"
    reason, message = refusal(contents, tmp_path)
    assert reason == "MODEL_UNSUPPORTED"
    assert "nosuch" in message
    assert all(known in message for known in core.architectures("gguf"))
    encoders = {case.architecture for case in TEXT_CASES.values()}
    assert set(core.architectures("gguf")) == {*FAMILIES, *encoders}
    contents.keys["general.architecture"] = "x" * 2**24
    reason, message = refusal(contents, tmp_path)
    assert reason == "MODEL_UNSUPPORTED"
    assert "x" * 64 in message
    assert "x" * 65 not in message
    del contents.keys["general.architecture"]
    reason, message = refusal(contents, tmp_path)
    assert (reason, "general.architecture" in message) == ("MODEL_KEY", True)


# In Gemma 4, each layer has a feed-forward in addition to its experts.
ONLY_EXPERTS = [family for family in FAMILIES if tiny(family).expert_ffn_size and family != "gemma4"]
MISSING = [
    (key, family)
    for key in REQUIRED
    for family in FAMILIES
    if key != "feed_forward_length" or family not in ONLY_EXPERTS
]


@pytest.mark.parametrize("family", ONLY_EXPERTS)
def test_models_of_experts_alone_need_no_other_feed_forward(family: str, tmp_path: Path) -> None:
    path = changed(tiny(family), feed_forward_length=None).write(tmp_path / "m.gguf")
    facts = {fact["name"]: fact["value"] for fact in _core.inspect_model(_core.open_model_file(path))["facts"]}
    assert facts["expert_ffn_size"] == str(tiny(family).expert_ffn_size)


@pytest.mark.few(24)
@pytest.mark.parametrize(("key", "family"), MISSING)
def test_m20_a_required_key_is_missing(key: str, family: str, tmp_path: Path) -> None:
    if TRAITS[family].layer_norm:
        key = key.replace("layer_norm_rms_epsilon", "layer_norm_epsilon")
    reason, message = refusal(changed(tiny(family), **{key: None}), tmp_path)
    assert (reason, f"{family}.{key}" in message) == ("MODEL_KEY", True)


WRONG_FOR_INTEGER = ["12", 12.0, True, [12]]
WRONG_FOR_NUMBER = ["0.5", 1, False, [0.5]]
KEYS_BY_TYPE = [
    *[(key, WRONG_FOR_INTEGER) for key in REQUIRED[:-1]],
    *[(key, WRONG_FOR_INTEGER) for key in ("attention.head_count_kv", "attention.key_length", "attention.value_length",
                                           "rope.dimension_count", "vocab_size", "expert_count",
                                           "rope.scaling.original_context_length", "attention.sliding_window")],
    *[(key, WRONG_FOR_NUMBER) for key in ("attention.layer_norm_rms_epsilon", "rope.freq_base", "attention.scale",
                                          "rope.scaling.factor", "rope.scaling.attn_factor", "rope.scale_linear")],
    ("rope.scaling.type", [1, 1.0, True, ["linear"]]),
]  # fmt: skip


@pytest.mark.few(10)
@pytest.mark.parametrize(("key", "wrong"), KEYS_BY_TYPE)
def test_m21_a_key_of_another_type(key: str, wrong: list[Any], tmp_path: Path) -> None:
    for value in wrong:
        reason, message = refusal(changed(tiny("llama"), **{key: value}), tmp_path)
        assert (reason, f"llama.{key}" in message) == ("MODEL_TYPE", True), value


@pytest.mark.parametrize("kind", [np.uint8, np.int8, np.uint16, np.int16, np.int32, np.uint64, np.int64])
def test_m21_integers_of_any_type_are_read(kind: Any, tmp_path: Path) -> None:
    contents = changed(tiny("llama"), block_count=kind(3), attention__head_count=kind(6))
    facts = _core.inspect_model(_core.open_model_file(contents.write(tmp_path / "m.gguf")))["facts"]
    assert {fact["name"]: fact["value"] for fact in facts}["n_layers"] == "3"


BAD_VALUES = [
    *[("m37", key, 0, "MODEL_VALUE") for key in ("block_count", "attention__head_count", "attention__head_count_kv",
                                                 "embedding_length", "feed_forward_length", "context_length",
                                                 "attention__key_length")],
    ("m37", "block_count", np.int32(-3), "MODEL_VALUE"),
    ("m38", "block_count", 2**31, "MODEL_LIMIT"),
    ("m38", "block_count", 1025, "MODEL_LIMIT"),
    ("m38", "embedding_length", np.uint64(2**40), "MODEL_LIMIT"),
    ("m38", "context_length", np.uint64(2**63), "MODEL_LIMIT"),
    ("m38", "context_length", 2**24 + 1, "MODEL_LIMIT"),
    ("m38", "attention__head_count", 1025, "MODEL_LIMIT"),
    ("m38", "feed_forward_length", 2**32 - 1, "MODEL_LIMIT"),
    ("m38", "attention__key_length", 2**20, "MODEL_LIMIT"),
    ("m39", "attention__head_count_kv", 4, "MODEL_VALUE"),
    ("m39", "attention__head_count_kv", 12, "MODEL_VALUE"),
    *[("m41", "attention__layer_norm_rms_epsilon", value, "MODEL_VALUE") for value in (0.0, -1.0, NAN, 1.0, INF)],
    *[("m41", "rope__freq_base", value, "MODEL_VALUE") for value in (0.0, -1.0, NAN, INF)],
    ("m42", "rope__dimension_count", 7, "MODEL_VALUE"),
    ("m42", "rope__dimension_count", 10, "MODEL_VALUE"),
    *[("m42", "rope__scaling__factor", value, "MODEL_VALUE") for value in (0.0, -2.0, NAN, INF)],
    ("m42_mod_7", "rope__scaling__type", "longrope", "MODEL_UNSUPPORTED"),
    ("m42", "rope__scaling__attn_factor", NAN, "MODEL_VALUE"),
    ("values_of_other_width", "attention__value_length", 16, "MODEL_UNSUPPORTED"),
    ("scale", "attention__scale", NAN, "MODEL_VALUE"),
]  # fmt: skip


@pytest.mark.parametrize(("key", "value", "reason"), [
    pytest.param(key, value, reason, id=f"{row}-{key}-{value}") for row, key, value, reason in BAD_VALUES
])  # fmt: skip
def test_m37_m38_m39_m41_m42_a_value_no_model_has(key: str, value: Any, reason: str, tmp_path: Path) -> None:
    got, message = refusal(changed(tiny("llama"), **{key: value}), tmp_path)
    assert (got, f"llama.{key.replace('__', '.')}" in message) == (reason, True), message


def test_m42_unknown_scaling_lists_the_known(tmp_path: Path) -> None:
    _, message = refusal(changed(tiny("qwen2"), rope__scaling__type="longrope"), tmp_path)
    assert message.endswith("longrope, expected one of none, linear, yarn")


def test_heads_must_divide_the_stream_where_their_size_is_not_stated(tmp_path: Path) -> None:
    contents = changed(tiny("llama"), attention__key_length=None, attention__value_length=None)
    assert refusal(contents, tmp_path) == (
        "MODEL_VALUE", "m.gguf: key llama.attention.head_count: 6, expected a divisor of embedding_length 40",
    )  # fmt: skip


def test_m43_more_rows_than_a_vocabulary_has(tmp_path: Path) -> None:
    """An embedding of 2^31 rows is a file with a hole: nothing of it is read."""
    model = tiny("llama", vocab_size=10)
    keys = [gguf_writer.Key(key, raw=_raw(value)) for key, value in model.keys().items() if not isinstance(value, list)]
    file = gguf_writer.Gguf(keys, [gguf_writer.Tensor("token_embd.weight", (32, 2**31), "q8_0", data=b"")])
    path = tmp_path / "m.gguf"
    header = file.header()
    with path.open("wb") as out:
        out.write(header)
        out.truncate(len(header) + 34 * 2**31)
    with pytest.raises(_core.ModelError, match=r"2147483648 rows, expected at most 4194304") as info:
        _core.inspect_model(_core.open_model_file(path))
    assert info.value.reason == "MODEL_LIMIT"


def _raw(value: Any) -> bytes:
    if isinstance(value, str):
        return struct.pack("<I", gguf_writer.STRING) + gguf_writer.string(value)
    kind = gguf_writer.F32 if isinstance(value, float) else gguf_writer.U32
    return struct.pack("<I", kind) + gguf_writer.scalar(kind, value)


def test_m43_fewer_rows_than_tokens(tmp_path: Path) -> None:
    contents = tiny("llama").contents()
    contents.keys["tokenizer.ggml.tokens"] = [f"t{i}" for i in range(52)]
    assert refusal(contents, tmp_path) == (
        "MODEL_TENSOR", "m.gguf: tensor token_embd.weight: shape [40, 51], expected rows for 52 tokens",
    )  # fmt: skip


def test_an_end_token_beyond_the_vocabulary(tmp_path: Path) -> None:
    contents = tiny("llama").contents()
    contents.keys["tokenizer.ggml.eos_token_id"] = 51
    reason, message = refusal(contents, tmp_path)
    assert (reason, message) == ("MODEL_VALUE", "m.gguf: key tokenizer.ggml.eos_token_id: 51, expected less than 51")


def test_the_pattern_of_windows_must_name_every_layer(tmp_path: Path) -> None:
    contents = changed(tiny("gemma3"), **{"attention.sliding_window_pattern": [True, False]})
    reason, message = refusal(contents, tmp_path)
    assert (reason, "2 values, expected one for each of 7 layers" in message) == ("MODEL_VALUE", True)


def test_a_key_that_is_not_understood_is_named(tmp_path: Path) -> None:
    contents = changed(tiny("llama"), frobnication=0.5)
    warnings = _core.inspect_model(_core.open_model_file(contents.write(tmp_path / "m.gguf")))["warnings"]
    assert warnings == ["key llama.frobnication: not understood and not used"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("logit_scale", 0.5),
        ("rope.scaling.yarn_log_multiplier", 0.1),
        ("rope.dimension_sections", [1, 1, 2, 0]),
        ("attention.clamp_kqv", 8.0),
        ("attention.causal", False),
        ("expert_group_count", 2),
        ("swin_norm", True),
        ("residual_scale", 0.25),
    ],
)
def test_m83_a_key_of_arithmetic_that_is_not_understood_is_refused(key: str, value: object, tmp_path: Path) -> None:
    reason, message = refusal(changed(tiny("llama"), **{key: value}), tmp_path)
    assert reason == "MODEL_UNSUPPORTED"
    assert message.startswith(f"m.gguf: key llama.{key}: ")


def test_m83_what_switches_it_off_is_a_warning(tmp_path: Path) -> None:
    off = {"logit_scale": 0.0, "residual_scale": 1.0, "expert_group_count": 0, "swin_norm": False,
           "attention.causal": True, "attention.layer_norm_epsilon": 1e-5}  # fmt: skip
    contents = changed(tiny("llama"), **off)
    warnings = _core.inspect_model(_core.open_model_file(contents.write(tmp_path / "m.gguf")))["warnings"]
    unknown = ("logit_scale", "residual_scale", "expert_group_count", "swin_norm")
    assert sorted(warnings) == sorted(f"key llama.{key}: not understood and not used" for key in unknown)


def test_the_thetas_of_gemma3_have_a_second_name(tmp_path: Path) -> None:
    contents = changed(tiny("gemma3"), rope__freq_base=None, rope__global__freq_base=5e5, rope__local__freq_base=2e4)
    report = _core.inspect_model(_core.open_model_file(contents.write(tmp_path / "m.gguf")))
    facts = {fact["name"]: fact["value"] for fact in report["facts"]}
    assert (float(facts["rope_theta"]), float(facts["windowed_rope_theta"])) == (5e5, 2e4)
    assert report["warnings"] == []
