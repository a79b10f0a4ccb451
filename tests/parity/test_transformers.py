"""Every architecture gives the logits of `transformers` for the same weights, and every family its texts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import imp_service
from support.files.hub_directory import words_of
from support.models.family_cases import CASES as OTHER_CASES
from support.models.family_cases import LLAMA3, FamilyCase, bound, compare, peer_logits, text_part
from support.models.family_text import EOS, OPTIONS, PROMPT, SETTINGS, continued, text_case, text_peer
from support.models.family_variants import YARNS, case_of_scaling, case_of_yarn
from support.models.forward_runs import Cache, distance, load, logits, prompt
from support.models.linear_attention_cases import LINEAR_CASES
from support.text.hub_tokenizers import files_of, library_of

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

CASES = OTHER_CASES | LINEAR_CASES


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CASES)
def test_mod_5_mod_30_hon_1_a_family_equals_transformers(name: str, tmp_path: Path) -> None:
    """Compares a GGUF file and a checkpoint that transformers saved. The controls detect each fact that is left out."""
    found = compare(CASES[name], tmp_path)
    of_tower = [text for text in found.warnings if "tensors are not part of the model and not read" in text]
    assert found.warnings == of_tower and len(of_tower) == bool(CASES[name].vision)
    assert found.is_equal, found
    assert found.uncaught == []
    assert found.same_bits != CASES[name].gguf_rounds


def change_weight(peer: Any) -> None:
    with torch.no_grad():
        layer = text_part(peer).layers[1]
        output = layer.linear_attn.out_proj if hasattr(layer, "linear_attn") else layer.self_attn.o_proj
        output.weight[3, 5] += 0.05


# The names of a layer's norms in all families. The test changes the first one that the layer has.
NORMS = ("input_layernorm", "attention_layernorm", "post_attention_layernorm")


def change_norm(peer: Any) -> None:
    layer = text_part(peer).layers[2]
    norm = next(getattr(layer, name) for name in NORMS if hasattr(layer, name))
    with torch.no_grad():
        norm.weight[7] += 0.05


@pytest.mark.long
@pytest.mark.parametrize("change", [change_weight, change_norm])
@pytest.mark.parametrize("name", CASES)
def test_hon_1_another_weight_is_seen(name: str, change: Callable[[Any], None], tmp_path: Path) -> None:
    peer = CASES[name].peer()
    model = load(CASES[name].written(peer, tmp_path / "m.gguf"), tmp_path, kv_dtype="f32")
    tokens = prompt(100, 53)
    change(peer)
    assert distance(logits(model, tokens), peer_logits(peer, tokens)) > 4 * bound(peer)


def saved(case: FamilyCase, folder: Path) -> tuple[Any, Path]:
    """Returns the transformers model of a case, and its files."""
    peer = case.peer()
    peer.save_pretrained(folder)
    return peer, folder


@pytest.mark.few(4)
@pytest.mark.parametrize("name", YARNS)
def test_gen_22_yarn_as_transformers_computes_it(name: str, tmp_path: Path) -> None:
    peer, folder = saved(case_of_yarn(YARNS[name]), tmp_path / "saved")
    tokens = prompt(200, 53)
    model = load(folder, tmp_path, kv_dtype="f32")
    assert model.warnings == []
    assert distance(logits(model, tokens), peer_logits(peer, tokens)) < bound(peer)


@pytest.mark.parametrize("name", ["untruncated", "mscales", "all"])
def test_gen_22_hon_1_yarn_without_these_keys_is_something_else(name: str, tmp_path: Path) -> None:
    peer, _ = saved(case_of_yarn(YARNS[name]), tmp_path / "saved")
    _, plain = saved(case_of_yarn({}), tmp_path / "plain")
    tokens = prompt(200, 53)
    got = logits(load(plain, tmp_path, kv_dtype="f32"), tokens)
    assert distance(got, peer_logits(peer, tokens)) > 4 * bound(peer)


OTHER_KINDS: dict[str, dict[str, Any]] = {
    "default": {"rope_type": "default"},
    "linear": {"rope_type": "linear", "factor": 4.0},
    "llama3": LLAMA3,
}


@pytest.mark.parametrize("kind", OTHER_KINDS)
def test_gen_22_keys_of_yarn_beside_another_kind_have_no_effect(kind: str, tmp_path: Path) -> None:
    extra = {"attention_factor": 0.5, "mscale": 1.0, "mscale_all_dim": 0.5}
    peer, folder = saved(case_of_scaling({**OTHER_KINDS[kind], **extra}), tmp_path / "saved")
    tokens = prompt(200, 53)
    model = load(folder, tmp_path, kv_dtype="f32")
    assert model.warnings == []
    assert distance(logits(model, tokens), peer_logits(peer, tokens)) < bound(peer)


EXPERT_CASES = [name for name, case in CASES.items() if case.keys.get("expert_count")]


# Gemma 4 normalizes the output of the experts, so the sum of their weights does not matter.
ROUTINGS = [
    (change, name)
    for change in ("normalized", "used", "order")
    for name in EXPERT_CASES
    if (change, CASES[name].architecture) != ("normalized", "gemma4")
]


@pytest.mark.long
@pytest.mark.parametrize(("change", "name"), ROUTINGS)
def test_mod_17_hon_1_another_routing_is_seen(name: str, change: str, tmp_path: Path) -> None:
    case = CASES[name]
    peer = case.peer()
    contents = case.exported(peer)
    at = f"{case.architecture}."
    if change == "normalized":
        contents.keys[f"{at}expert_weights_norm"] = not contents.keys.get(
            f"{at}expert_weights_norm", case.architecture != "qwen2moe"
        )
    elif change == "used":
        contents.keys[f"{at}expert_used_count"] -= 1
    else:  # swaps the router's rows of the first two experts of layer 1
        router = contents.tensors["blk.1.ffn_gate_inp.weight"].values
        router[[0, 1]] = router[[1, 0]]
    tokens = prompt(100, 53)
    got = logits(load(contents.write(tmp_path / "m.gguf"), tmp_path, kv_dtype="f32"), tokens)
    assert distance(got, peer_logits(peer, tokens)) > 100 * bound(peer)


@pytest.mark.sweep(quick=lambda name, **_: name in ("llama", "gemma2", "cohere2", "hunyuan"))
@pytest.mark.parametrize("name", CASES)
def test_gen_21_hon_1_a_position_off_by_one_is_seen(name: str, tmp_path: Path) -> None:
    peer = CASES[name].peer()
    cache = Cache(load(CASES[name].written(peer, tmp_path / "m.gguf"), tmp_path, kv_dtype="f32"))
    tokens = prompt(60, 53)
    blocks = cache.blocks(64)
    cache.run((tokens[:-1], 0, blocks))
    [moved] = cache.run((tokens[-1:], 60, blocks))
    assert distance(moved, peer_logits(peer, tokens)[-1:]) > 100 * bound(peer)


@pytest.mark.long
@pytest.mark.parametrize("name", CASES)
def test_hub_9_mod_30_hon_1_a_family_continues_a_text_as_transformers_does(name: str, tmp_path: Path) -> None:
    library = library_of("byte level")
    vocab_size = library.get_vocab_size()
    case = text_case(CASES[name], vocab_size)
    peer = text_peer(case)
    folder = tmp_path / "model"
    peer.save_pretrained(folder)
    for file, content in files_of(library, eos_token=EOS).items():
        (folder / file).write_bytes(content)
    contents = case.exported(peer)
    contents.keys |= words_of(library, "qwen2", vocab_size, EOS)
    expected = continued(peer, library.encode(PROMPT, add_special_tokens=False).ids)
    assert len(set(expected)) > 2 or name == "starcoder2"  # which repeats one token
    for path in (folder, contents.write(tmp_path / "m.gguf")):
        with imp_service.load(path, *SETTINGS) as model:
            found = model.generate(PROMPT, **OPTIONS).result()
            other = model.generate(f"{PROMPT}x", **OPTIONS).result()
        assert list(found.token_ids) == expected
        assert found.text == library.decode(expected)
        assert found.logprobs != other.logprobs  # HON-1
