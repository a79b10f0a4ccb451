"""What config.json leaves out has the default of `transformers`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from support.models.family_cases import CASES as OTHER_CASES
from support.models.family_cases import LLAMA3, ROPE, SIZES, TOWER, FamilyCase, bound, peer_logits, text_part
from support.models.forward_runs import distance, load, logits, prompt
from support.models.linear_attention_cases import LINEAR_CASES

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

CASES = OTHER_CASES | LINEAR_CASES
DELETED = object()
WINDOWS = {"use_sliding_window": True, "sliding_window": 20}
TYPES = {"layer_types": DELETED}
NO_ROPE = {"rope_parameters": DELETED}
FULL = {"layer_types": ["full_attention"] * 3}


def change(folder: Path, changes: dict[str, Any]) -> dict[str, Any]:
    """Changes the keys of the text part, and returns it."""
    path = folder / "config.json"
    config = json.loads(path.read_text())
    text: dict[str, Any] = config.get("text_config", config)
    for key, value in changes.items():
        text.pop(key, None)
        if value is not DELETED:
            text[key] = value
    path.write_text(json.dumps(config))
    return text


def assert_equals_what_transformers_reads(peer: Any, folder: Path) -> None:
    read = type(peer).from_pretrained(folder, attn_implementation="eager").eval()
    tokens = prompt(100, SIZES["vocab_size"])
    got = logits(load(folder, folder, kv_dtype="f32"), tokens)
    assert distance(got, peer_logits(read, tokens)) < bound(peer)
    with torch.no_grad():
        text_part(read).layers[1].self_attn.o_proj.weight[3, 5] += 0.05
    assert distance(got, peer_logits(read, tokens)) > 4 * bound(peer)  # HON-1


# A family, and what is changed in the file that transformers saved. Each change has an effect.
CHANGED: dict[str, tuple[FamilyCase, dict[str, Any]]] = {
    "windows of qwen2": (CASES["qwen2_yarn"], {**WINDOWS, **TYPES, "max_window_layers": 1}),
    "windows of qwen2_moe": (CASES["qwen2_moe"], {**WINDOWS, **TYPES}),
    "windows of qwen2_moe in its first layers": (CASES["qwen2_moe"], {**WINDOWS, **TYPES, "max_window_layers": 1}),
    "windows of qwen2_moe by types": (CASES["qwen2_moe"], {**WINDOWS, "layer_types": ["sliding_attention"] * 3}),
    "windows of qwen3_moe": (CASES["qwen3_moe"], WINDOWS),
    "windows of qwen3_moe whatever the types": (CASES["qwen3_moe"], {**WINDOWS, **FULL}),
    "windows of smollm3": (CASES["smollm3"], {**WINDOWS, **TYPES}),
    "windows of smollm3 by its list": (CASES["smollm3"], {**WINDOWS, **TYPES, "no_rope_layers": [1, 0, 0, 1, 0]}),
    "rope of gpt_oss": (CASES["gpt_oss"], NO_ROPE),
    "rope of gpt_oss with a theta": (CASES["gpt_oss"], {**NO_ROPE, "rope_theta": 1e4}),
    "rope of apertus": (CASES["apertus"], NO_ROPE),
    "rope of apertus with a theta": (CASES["apertus"], {**NO_ROPE, "rope_theta": 1e4, "rope_scaling": None}),
    "rope of apertus without keys": (CASES["apertus"], {"rope_parameters": {}}),
    "rope of apertus without scaling": (CASES["apertus"], {**NO_ROPE, "rope_scaling": {}}),
    "old keys of apertus": (CASES["apertus"], {**NO_ROPE, "rope_scaling": {**LLAMA3, "factor": 2.0}}),
    "rope of ministral3": (CASES["ministral3"], NO_ROPE),
    "rope of ministral3 with a theta": (CASES["ministral3"], {**NO_ROPE, "rope_theta": 1e4}),
}  # fmt: skip


@pytest.mark.few(4)
@pytest.mark.parametrize("name", CHANGED)
def test_mod_30_hon_1_a_changed_configuration_equals_transformers(name: str, tmp_path: Path) -> None:
    case, changes = CHANGED[name]
    peer = case.peer()
    peer.save_pretrained(tmp_path / "saved")
    change(tmp_path / "saved", changes)
    read = type(peer).from_pretrained(tmp_path / "saved", attn_implementation="eager").eval()
    tokens = prompt(100, SIZES["vocab_size"])
    model = load(tmp_path / "saved", tmp_path, kv_dtype="f32")
    assert model.warnings == []
    got = logits(model, tokens)
    assert distance(got, peer_logits(read, tokens)) < bound(peer)
    assert distance(got, peer_logits(peer, tokens)) > 4 * bound(peer)  # HON-1


# Keys of windows that have no effect there.
UNUSED = {
    "qwen3_vl": WINDOWS,
    "qwen3_vl_moe": WINDOWS,
    "smollm3": {**TYPES, "use_sliding_window": True, "sliding_window": DELETED},
}  # fmt: skip


@pytest.mark.parametrize("name", UNUSED)
def test_mod_30_hon_1_windows_that_transformers_does_not_have(name: str, tmp_path: Path) -> None:
    peer = CASES[name].peer()
    peer.save_pretrained(tmp_path / "saved")
    change(tmp_path / "saved", UNUSED[name])
    assert_equals_what_transformers_reads(peer, tmp_path / "saved")


def test_gen_22_queries_of_a_ministral3_without_rope_parameters_grow(tmp_path: Path) -> None:
    """They grow from the position on that is the original context."""
    CASES["ministral3"].peer().save_pretrained(tmp_path)
    change(tmp_path, NO_ROPE)
    rope = transformers.AutoConfig.from_pretrained(tmp_path).rope_parameters
    facts = {fact["name"]: fact["value"] for fact in load(tmp_path, tmp_path).facts}
    assert float(facts["query_scale_growth"]) == pytest.approx(rope["llama_4_scaling_beta"])
    assert int(facts["query_scale_period"]) == rope["original_max_position_embeddings"]


@pytest.mark.parametrize("model", ["Idefics3", "SmolVLM"])
def test_mod_30_hon_1_the_text_part_of_idefics3_lacks_what_llama_has_by_default(model: str, tmp_path: Path) -> None:
    traits = {"model_type": "llama", **ROPE, "hidden_size": 64, "num_attention_heads": 32, "num_key_value_heads": 32,
              "rms_norm_eps": 0.1}  # fmt: skip
    peer = FamilyCase(model, traits, "", {}, {}, vision=TOWER).peer()
    peer.save_pretrained(tmp_path)
    change(tmp_path, dict.fromkeys(("num_attention_heads", "num_key_value_heads", "rms_norm_eps"), DELETED))
    change(tmp_path, {"max_position_embeddings": DELETED})
    assert_equals_what_transformers_reads(peer, tmp_path)


SIZES_OF_HEADS = ("num_key_value_heads", "head_dim")
# Families whose default sizes fit a tiny model.
OMITTED: dict[str, FamilyCase] = {
    "llama": FamilyCase("Llama", {**ROPE, "hidden_size": 64, "num_key_value_heads": 4, "head_dim": 16}, "", {}, {}),
    "seed_oss": FamilyCase(
        "SeedOss",
        {**ROPE, "num_attention_heads": 8, "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 2},
        "", {}, {},
    ),
    "glm4": FamilyCase("Glm4", {**ROPE, "head_dim": 128}, "", {}, {}),
    "ernie4_5": FamilyCase("Ernie4_5", {**ROPE, "head_dim": 128}, "", {}, {}),
    "qwen3_moe": FamilyCase(
        "Qwen3Moe",
        {**ROPE, "hidden_size": 64, "num_key_value_heads": 4, "head_dim": 16, "num_experts": 6,
         "num_experts_per_tok": 3, "moe_intermediate_size": 24},
        "", {}, {},
    ),
}  # fmt: skip


@pytest.mark.few(2)
@pytest.mark.parametrize("name", OMITTED)
def test_mod_30_hon_1_sizes_of_heads_that_are_left_out(name: str, tmp_path: Path) -> None:
    peer = OMITTED[name].peer()
    peer.save_pretrained(tmp_path / "saved")
    change(tmp_path / "saved", dict.fromkeys(SIZES_OF_HEADS, DELETED))
    assert_equals_what_transformers_reads(peer, tmp_path / "saved")


# Gemma 4 has sizes of each layer; Granite 4 refuses 32 heads; the divisors of Phi 4 fit one size of heads.
ONE_SIZE = [name for name in CASES if not name.startswith(("gemma4", "granite_4", "phi4"))]


@pytest.mark.few(4)
@pytest.mark.parametrize("name", ONE_SIZE)
def test_mod_30_err_3_a_wrong_shape_names_the_sizes_that_are_left_out(name: str, tmp_path: Path) -> None:
    """The sizes fit no tensor, and the error has the default of transformers for each."""
    CASES[name].peer().save_pretrained(tmp_path)
    left_out = dict.fromkeys(SIZES_OF_HEADS, DELETED)
    change(tmp_path, {**left_out, "num_attention_heads": 32, "hidden_size": 128})
    config = transformers.AutoConfig.from_pretrained(tmp_path).get_text_config()
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    with pytest.raises(_core.ModelError) as caught:
        load(tmp_path, tmp_path)
    at = "text_config." if CASES[name].vision else ""
    assert str(caught.value).endswith(
        f"; config.json does not have {at}num_key_value_heads ({config.num_key_value_heads} by default), "
        f"{at}head_dim ({head_dim} by default)"
    )


def test_mod_30_hon_1_null_heads_are_derived(tmp_path: Path) -> None:
    """Where a family has a number of its own for a missing key, null means the number that others imply."""
    case = FamilyCase("Ernie4_5", {**ROPE, "hidden_size": 64, "num_key_value_heads": 4, "head_dim": 16}, "", {}, {})
    peer = case.peer()
    peer.save_pretrained(tmp_path / "saved")
    change(tmp_path / "saved", dict.fromkeys(SIZES_OF_HEADS))
    assert_equals_what_transformers_reads(peer, tmp_path / "saved")


@pytest.mark.parametrize("ids", [-1, [-1, 2], [-(2**40)]])
def test_hub_4_a_negative_end_of_text_is_ignored(ids: object, tmp_path: Path) -> None:
    """transformers warns about it and ends no text at it."""
    CASES["llama"].peer().save_pretrained(tmp_path)
    change(tmp_path, {"eos_token_id": ids})
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": ids}))
    assert load(tmp_path, tmp_path).warnings == []
    change(tmp_path, {"eos_token_id": [-1, SIZES["vocab_size"]]})
    with pytest.raises(_core.ModelError, match="eos_token_id: 53, expected less than 53"):
        load(tmp_path, tmp_path)
