"""One set of weights gives the same bits from a GGUF file and from a safetensors checkpoint."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.hf_contents import hf_config, hf_tensors, write_hf
from support.models.forward_runs import distance, load, logits, prompt
from support.models.tiny_families import CPU_OPS, FAMILIES
from support.models.tiny_models import TinyModel, tiny
from support.oracles.forward_bounds import float32_bound

MODELS: dict[str, TinyModel] = {
    "llama": tiny("llama"),
    "llama_biases": tiny("llama", output_bias=True),
    "qwen2_yarn": tiny("qwen2", head_dim=32, scaling={"type": "yarn", "factor": 4.0, "original_context_length": 64}),
    "qwen3": tiny("qwen3"),
    "qwen2moe": tiny("qwen2moe"),
    "qwen3moe": tiny("qwen3moe"),
    "qwen3moe_not_normalized": tiny("qwen3moe", expert_weights_normalized=False),
    "mixtral": tiny("llama", n_experts=4),
    "gemma2": tiny("gemma2"),
    "gemma3_linear": tiny("gemma3", scaling={"type": "linear", "factor": 8.0}),
}


def written(model: TinyModel, folder: Path, **changes: Any) -> Path:
    return write_hf(folder / "model.safetensors", hf_config(model) | changes, hf_tensors(model))


def refusal(path: Path) -> tuple[str, str]:
    with pytest.raises(_core.ModelError) as info:
        load(path, path.parent)
    return info.value.reason, info.value.message


@pytest.mark.few(5)
@pytest.mark.parametrize("name", MODELS)
def test_mod_5_equal_bits_from_either_format(name: str, tmp_path: Path) -> None:
    model = MODELS[name]
    tokens = prompt(70, model.vocab_size)
    from_gguf = load(model, tmp_path, kv_dtype="f32")
    from_safetensors = load(written(model, tmp_path), tmp_path, kv_dtype="f32")
    got = logits(from_safetensors, tokens)
    assert from_safetensors.warnings == []
    assert np.array_equal(got, logits(from_gguf, tokens))
    assert distance(got, model.oracle().logits(tokens)) < float32_bound(model)
    facts = [{fact["name"]: fact["value"] for fact in loaded.facts} for loaded in (from_gguf, from_safetensors)]
    assert facts[0] == facts[1]


def test_hon_1_rows_in_the_files_order_are_seen(tmp_path: Path) -> None:
    """In the other format, rows of q and k that rotate together are half a head apart."""
    model = tiny("llama")
    tokens = prompt(70, model.vocab_size)
    wrong = {hf: tensor.values for hf, tensor in zip(hf_tensors(model), model.tensors().values(), strict=True)}
    path = write_hf(tmp_path / "model.safetensors", hf_config(model), wrong)
    got = logits(load(path, tmp_path, kv_dtype="f32"), tokens)
    assert distance(got, model.oracle().logits(tokens)) > 100 * float32_bound(model)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"rope_theta": None, "rope_parameters": {"rope_type": "default", "rope_theta": 500.0}}, {"theta": 500.0}),
        ({"rope_theta": 500.0}, {"theta": 500.0}),
        ({"rope_scaling": {"type": "linear", "factor": 4}}, {"scaling": {"type": "linear", "factor": 4.0}}),
        ({"head_dim": None, "hidden_size": 40}, {}),
    ],
)
def test_keys_of_several_generations(changes: dict[str, Any], expected: dict[str, Any], tmp_path: Path) -> None:
    model = tiny("llama", n_heads=5, n_kv_heads=5)
    tokens = prompt(40, model.vocab_size)
    config = {key: value for key, value in (hf_config(model) | changes).items() if value is not None}
    path = write_hf(tmp_path / "model.safetensors", config, hf_tensors(model))
    loaded = load(path, tmp_path, kv_dtype="f32")
    oracle = tiny("llama", n_heads=5, n_kv_heads=5, **expected).oracle()
    assert loaded.warnings == []
    assert distance(logits(loaded, tokens), oracle.logits(tokens)) < float32_bound(model)


# Optional keys; where null is a value of its own (the soft caps of gemma2) it is not among them.
OPTIONAL = {
    "llama": ("is_causal", "hidden_act", "tie_word_embeddings", "rope_theta",
              "rope_scaling", "rope_parameters", "eos_token_id", "sliding_window", "partial_rotary_factor",
              "architectures"),
    "qwen3": ("use_qk_norm", "is_causal", "use_sliding_window", "layer_types", "tie_word_embeddings"),
    "gemma2": ("hidden_activation", "hidden_act", "layer_types", "query_pre_attn_scalar", "sliding_window_size"),
    "qwen3moe": ("decoder_sparse_step", "mlp_only_layers", "norm_topk_prob", "use_qk_norm"),
}  # fmt: skip


def test_swish_is_silu(tmp_path: Path) -> None:
    for name in ("silu", "swish"):
        (tmp_path / name).mkdir()
    paths = [written(tiny("llama"), tmp_path / name, hidden_act=name) for name in ("silu", "swish")]
    facts = [[(fact["name"], fact["value"]) for fact in load(path, tmp_path).facts] for path in paths]
    assert facts[0] == facts[1]


@pytest.mark.few(11)
@pytest.mark.parametrize(("family", "key"), [(family, key) for family, keys in OPTIONAL.items() for key in keys])
def test_mod_5_null_counts_as_a_missing_key(family: str, key: str, tmp_path: Path) -> None:
    model = tiny(family)
    config = hf_config(model)
    config.pop(key, None)
    read = []
    for name, said in (("missing", config), ("null", config | {key: None})):
        (tmp_path / name).mkdir()
        loaded = load(write_hf(tmp_path / name / "model.safetensors", said, hf_tensors(model)), tmp_path)
        read.append(([(fact["name"], fact["value"]) for fact in loaded.facts], loaded.warnings))
    assert read[0] == read[1]


def test_gen_22_null_inside_the_scaling_counts_as_a_missing_key(tmp_path: Path) -> None:
    scaling = {"type": "linear", "factor": 4.0}
    (tmp_path / "null").mkdir()
    null = written(tiny("llama"), tmp_path / "null", rope_scaling={**scaling, "rope_type": None})
    missing = written(tiny("llama"), tmp_path, rope_scaling=scaling)
    facts = [[(fact["name"], fact["value"]) for fact in load(path, tmp_path).facts] for path in (null, missing)]
    assert facts[0] == facts[1]


def test_mistral_sees_a_window(tmp_path: Path) -> None:
    model = tiny("llama", window=9)
    tokens = prompt(40, model.vocab_size)
    path = written(model, tmp_path, model_type="mistral", sliding_window=9, architectures=["MistralForCausalLM"])
    got = logits(load(path, tmp_path, kv_dtype="f32"), tokens)
    assert distance(got, model.oracle().logits(tokens)) < float32_bound(model)


REFUSALS: list[tuple[dict[str, Any], str, str]] = [
    ({"model_type": "nosuch"}, "MODEL_UNSUPPORTED", ", ".join(core.architectures("hf"))),
    ({"architectures": []}, "MODEL_UNSUPPORTED", "architectures: none, expected one ending in ForCausalLM"),
    ({"architectures": ["LlamaForTokenClassification"]}, "MODEL_UNSUPPORTED", "LlamaForTokenClassification"),
    (
        {"quantization_config": {"quant_method": "gptq", "bits": 4}},
        "MODEL_UNSUPPORTED",
        "quantization_config.quant_method: gptq",
    ),
    ({"tie_word_embeddings": 1}, "MODEL_CONFIG", "tie_word_embeddings"),
    (
        {"hidden_act": "relu"},
        "MODEL_UNSUPPORTED",
        "hidden_act: relu, expected one of silu, swish, gelu, gelu_py",
    ),
    ({"rope_scaling": {"rope_type": "nosuch", "factor": 4.0}}, "MODEL_UNSUPPORTED", "nosuch, expected one of default"),
    (
        {"rope_scaling": {"rope_type": "longrope", "factor": 4.0, "short_factor": [1.0], "long_factor": [1.0]}},
        "MODEL_CONFIG",
        "rope_scaling.short_factor: 1 values, expected a number above 0 for each of 4 pairs",
    ),
    ({"vocab_size": 52}, "MODEL_TENSOR", "model.embed_tokens.weight"),
    ({"vocab_size": 50}, "MODEL_TENSOR", "51 rows, expected 50, as vocab_size says"),
    ({"head_dim": None, "num_attention_heads": 6}, "MODEL_CONFIG", "a divisor of hidden_size 40"),
    ({"num_hidden_layers": 4}, "MODEL_TENSOR", "model.layers.3.input_layernorm.weight: missing"),
    ({"tie_word_embeddings": True, "num_hidden_layers": 2}, "MODEL_TENSOR", "model.layers.2."),
    ({"eos_token_id": [2, 51]}, "MODEL_CONFIG", "eos_token_id: 51, expected less than 51"),
    ({"num_key_value_heads": 4}, "MODEL_CONFIG", "num_key_value_heads: 4"),
    ({"rms_norm_eps": 1.0}, "MODEL_CONFIG", "rms_norm_eps: 1"),
    ({"rope_theta": -1.0}, "MODEL_CONFIG", "rope_theta: -1"),
    ({"partial_rotary_factor": 1e30}, "MODEL_CONFIG", "partial_rotary_factor: 1e+30, expected above 0, at most 1"),
    ({"partial_rotary_factor": 0.0}, "MODEL_CONFIG", "partial_rotary_factor: 0, expected above 0, at most 1"),
    ({"num_hidden_layers": 1025}, "MODEL_LIMIT", "num_hidden_layers: 1025"),
]


@pytest.mark.parametrize(
    ("said", "words"),
    [("51", "51, expected less than 51"), ("[-1, 51]", "51, expected less than 51"), ('"a"', "expected")],
)
def test_m81_defaults_of_generations_with_ends_that_are_no_tokens(said: str, words: str, tmp_path: Path) -> None:
    path = written(tiny("llama"), tmp_path)
    path.with_name("generation_config.json").write_text(f'{{"eos_token_id": {said}}}')
    reason, message = refusal(path)
    assert (reason, words in message) == ("MODEL_CONFIG", True), message
    assert "generation_config.eos_token_id" in message


@pytest.mark.parametrize(("changes", "reason", "words"), REFUSALS)
def test_m78_m80_mod_7_configurations_that_are_refused(
    changes: dict[str, Any], reason: str, words: str, tmp_path: Path
) -> None:
    got, message = refusal(written(tiny("llama"), tmp_path, **changes))
    assert (got, words in message) == (reason, True), message


@pytest.mark.few(21)
@pytest.mark.parametrize("value", [-1, 1.5, 1e308, 2**64, "12", None, 0])
@pytest.mark.parametrize(
    "key", ["num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "vocab_size",
            "max_position_embeddings"],
)  # fmt: skip
def test_m77_a_used_number_of_a_wrong_kind(key: str, value: Any, tmp_path: Path) -> None:
    reason, message = refusal(written(tiny("llama"), tmp_path, **{key: value}))
    assert (reason, f"key {key}: " in message) == ("MODEL_CONFIG", True), message


@pytest.mark.parametrize("key", ["model_type", "hidden_size", "rms_norm_eps", "num_hidden_layers", "vocab_size"])
def test_a_required_key_of_a_configuration(key: str, tmp_path: Path) -> None:
    model = tiny("llama")
    config = {name: value for name, value in hf_config(model).items() if name != key}
    reason, message = refusal(write_hf(tmp_path / "model.safetensors", config, hf_tensors(model)))
    assert (reason, f"key {key}: missing" in message) == ("MODEL_CONFIG", True), message


def test_mod_6_a_head_that_is_stated_apart_must_be_there(tmp_path: Path) -> None:
    model = tiny("llama")
    tensors = hf_tensors(model)
    del tensors["lm_head.weight"]
    reason, message = refusal(write_hf(tmp_path / "model.safetensors", hf_config(model), tensors))
    assert (reason, message) == (
        "MODEL_TENSOR", "model.safetensors: tensor lm_head.weight: missing, expected [40, 51]",
    )  # fmt: skip


def test_a_key_that_is_not_understood_is_named(tmp_path: Path) -> None:
    loaded = load(written(tiny("qwen3"), tmp_path, frobnication=0.5), tmp_path)
    assert loaded.warnings == ["key frobnication: not understood and not used"]


YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 64}
ARITHMETIC: list[tuple[dict[str, Any], str, str]] = [
    ({"residual_multiplier": 0.5}, "residual_multiplier", "0.5"),
    ({"rope_scaling": {**YARN, "llama_4_scaling_beta": 0.1}}, "rope_scaling.llama_4_scaling_beta", "0.1"),
    ({"rope_scaling": {"rope_type": "default", "mrope_section": [1, 2, 1]}}, "rope_scaling.mrope_section", "array of"),
    ({"rope_parameters": {**YARN, "rope_theta": 1e4, "odd": True}}, "rope_parameters.odd", "true"),
    ({"partial_rotary_dims": 4}, "partial_rotary_dims", "4"),
    ({"attention_multiplier": 0.2}, "attention_multiplier", "0.2"),
    ({"attn_temperature_tuning": True}, "attn_temperature_tuning", "true"),
    ({"norm_type": "layer"}, "norm_type", "'layer'"),
    ({"n_shared_experts": 1}, "n_shared_experts", "1"),
    ({"logits_scaling": 8}, "logits_scaling", "8"),
    ({"clamp_kqv": 8.0}, "clamp_kqv", "8"),
    ({"is_causal": False}, "is_causal", "false"),
    ({"use_qk_norm": False}, "use_qk_norm", "false"),
]


@pytest.mark.parametrize(("changes", "key", "found"), ARITHMETIC)
def test_m83_a_key_of_arithmetic_that_is_not_understood_is_refused(
    changes: dict[str, Any], key: str, found: str, tmp_path: Path
) -> None:
    reason, message = refusal(written(tiny("qwen3"), tmp_path, **changes))
    assert reason == "MODEL_UNSUPPORTED"
    assert f"key {key}: {found}" in message


def test_m83_what_switches_it_off_is_a_warning(tmp_path: Path) -> None:
    off = {
        "residual_multiplier": 1.0, "logits_scaling": 1, "attn_temperature_tuning": False, "rope_local": None,
        "n_shared_experts": 0, "norm_type": "", "expert_layers": [], "use_qk_norm": True, "is_causal": True,
    }  # fmt: skip
    loaded = load(written(tiny("qwen3"), tmp_path, **off), tmp_path)
    unknown = ("residual_multiplier", "logits_scaling", "attn_temperature_tuning", "n_shared_experts", "norm_type")
    assert sorted(loaded.warnings) == sorted(f"key {key}: not understood and not used" for key in unknown)


def test_keys_of_both_generations_beside_each_other(tmp_path: Path) -> None:
    model = tiny("qwen2", head_dim=32, scaling={"type": "yarn", "factor": 4.0, "original_context_length": 64})
    parameters = {"type": "yarn", "rope_theta": model.theta, **YARN}
    both = {"rope_theta": None, "rope_scaling": None, "rope_parameters": parameters}
    loaded = load(written(model, tmp_path, **both), tmp_path, kv_dtype="f32")
    tokens = prompt(70, model.vocab_size)
    assert loaded.warnings == []
    assert distance(logits(loaded, tokens), model.oracle().logits(tokens)) < float32_bound(model)


def test_mod_30_readme_names_the_families_of_both_formats() -> None:
    readme = (Path(__file__).parents[2] / "README.md").read_text()
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \| (yes|no) \|$", readme, re.MULTILINE)
    names = [{name for row in rows for name in re.findall("`([^`]+)`", row[i])} for i in (0, 1)]
    assert names == [set(core.architectures("gguf")), set(core.architectures("hf"))]
    on_gpus = {name for row in rows if row[2] == "yes" for name in re.findall("`([^`]+)`", row[0])}
    assert set(FAMILIES) - on_gpus == set(CPU_OPS)


def test_a_window_that_has_two_names(tmp_path: Path) -> None:
    model = tiny("gemma2")
    loaded = load(written(model, tmp_path, sliding_window_size=model.window + 1), tmp_path)
    assert loaded.warnings == []
    assert next(fact["value"] for fact in loaded.facts if fact["name"] == "windows").startswith(f"{model.window} in ")
