"""Vectors of texts: their bits depend on the text alone, and what a file or an override says of them."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from support.files.gguf_contents import GgufContents
from support.files.sentence_folder import pooling_config, write_dense, write_modules, write_pooling
from support.kernels.bits import assert_same_bits
from support.kernels.devices import GPU_KINDS, ISAS
from support.models.forward_runs import distance, load, overrides, prompt
from support.models.text_cases import LENGTHS, Text
from support.models.text_runs import vectors
from support.models.tiny_encoders import TinyEncoder
from support.models.tiny_models import tiny
from support.oracles.tolerances import VECTORS

TEXTS = [Text(prompt(n, 53, seed=n), second=n // 2) for n in (*LENGTHS, 17, 33)]


def facts(model: dict[str, Any]) -> dict[str, str]:
    return {fact["name"]: fact["value"] for fact in model["facts"]}


def inspected(path: Path, **changes: Any) -> dict[str, Any]:
    found: dict[str, Any] = _core.inspect_model(_core.open_model_file(path), overrides(**changes))
    return found


def refusal(path: Path, **changes: Any) -> tuple[str, str]:
    with pytest.raises(_core.ModelError) as info:
        inspected(path, **changes)
    return info.value.reason, info.value.message


def decoder(**keys: Any) -> GgufContents:
    contents = tiny("qwen3").contents()
    contents.keys |= {f"qwen3.{key}": value for key, value in keys.items()}
    return contents


@pytest.mark.parametrize("pooling", ["mean", "cls", "rank"])
def test_emb_1_a_vector_has_the_same_bits_whatever_else_is_in_the_batch(pooling: str, tmp_path: Path) -> None:
    path = TinyEncoder(pooling).write_folder(tmp_path / "model")
    together = vectors(load(path, tmp_path), TEXTS)
    assert np.isfinite(together).all() and len({row.tobytes() for row in together}) == len(TEXTS)
    for isa in ISAS:
        for threads in (1, 2):
            model = load(path, tmp_path, isa=isa, threads=threads)
            assert_same_bits(vectors(model, TEXTS[::-1]), together[::-1])
            assert_same_bits(np.concatenate([vectors(model, [text]) for text in TEXTS]), together)


def test_emb_1_a_quantized_file_has_nearly_the_vectors_of_the_other(tmp_path: Path) -> None:
    encoder = TinyEncoder(hidden_size=64, ffn_size=96)
    exact = vectors(load(encoder.write(tmp_path / "m.gguf"), tmp_path), TEXTS)
    for dtype, bound in (("q8_0", 0.05), ("f16", 0.005)):
        contents = encoder.contents()
        for name, tensor in contents.tensors.items():
            if tensor.values.ndim == 2 and not name.startswith(("position", "token_types")):
                contents.tensors[name] = dataclasses.replace(tensor, dtype=dtype)
        found = vectors(load(contents.write(tmp_path / f"{dtype}.gguf"), tmp_path, kv_dtype="f32"), TEXTS)
        assert 0 < distance(found, exact.astype(np.float64)) < bound


def test_emb_1_an_encoder_has_one_layer_of_cache_and_no_logits(tmp_path: Path) -> None:
    path = TinyEncoder(n_layers=3).write_folder(tmp_path / "model")
    model = load(path, tmp_path)
    assert (model.has_head, model.pooling, model.vector_width) == (False, "mean", 32)
    assert (model.n_token_types, model.needs_whole_texts) == (2, True)
    assert (model.vocab_size, model.n_tokens) == (53, 53)
    assert len(model.kv_dtypes) == 1
    assert model.memory["items"]["logits"] == 0
    with pytest.raises(_core.InvalidArgument, match="predicts none"):
        model.try_cache_types([5] * 40, n_judged=8, kv_dtype="q8_0")


def test_emb_1_inspect_shows_what_an_encoder_is(tmp_path: Path) -> None:
    found = facts(inspected(TinyEncoder("cls").write_folder(tmp_path / "model")))
    shown = {
        "is_two_sided": "yes", "has_head": "no", "position_rows": "128", "n_token_types": "2", "pooling": "cls",
        "norm_placement": "after_sum", "activation": "gelu_erf", "embedding_norm": "yes",
    }  # fmt: skip
    assert found.items() >= shown.items()
    assert "rope_theta" not in found


@pytest.mark.parametrize(("pooling", "width"), [("last", 40), ("mean", 40)])
def test_emb_1_a_decoder_makes_vectors_if_its_file_or_the_user_says_how(
    pooling: str, width: int, tmp_path: Path
) -> None:
    plain = decoder().write(tmp_path / "plain.gguf")
    named = decoder(pooling_type={"mean": 1, "last": 3}[pooling]).write(tmp_path / "named.gguf")
    models = [load(named, tmp_path), load(plain, tmp_path, pooling=pooling)]
    first, second = (vectors(model, TEXTS) for model in models)
    assert_same_bits(first, second)
    assert [model.vector_width for model in models] == [width, width]
    assert models[0].has_head and models[0].needs_whole_texts == (pooling == "mean")
    nothing = load(plain, tmp_path)
    assert (nothing.pooling, nothing.vector_width) == ("none", 0)


def test_emb_1_the_longest_text_is_that_of_the_folder_and_of_a_step(tmp_path: Path) -> None:
    folder = TinyEncoder().write_folder(tmp_path / "model")
    assert facts(inspected(folder))["max_context"] == "128"
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 77}')
    assert facts(inspected(folder))["max_context"] == "77"
    assert facts(inspected(folder, max_context=100))["max_context"] == "100"
    assert refusal(folder, max_context=129)[0] == "OVERRIDE_INVALID"
    model = load(folder, tmp_path, max_rows=64)
    assert model.max_context == 64
    [warning] = model.warnings
    assert warning == "max_context is 64, not 77: a text is evaluated in one step, of scheduler.step_tokens"


def test_emb_1_products_behind_the_pooling_are_applied(tmp_path: Path) -> None:
    folder = TinyEncoder().write_folder(tmp_path / "model")
    plain = vectors(load(folder, tmp_path), TEXTS).astype(np.float64)
    rng = np.random.default_rng(3)
    first, second = rng.normal(size=(48, 32)).astype(np.float32), rng.normal(size=(8, 48)).astype(np.float32)
    bias = rng.normal(size=48).astype(np.float32)
    write_dense(folder, "2_Dense", first, bias, "torch.nn.modules.activation.Tanh")
    write_dense(folder, "3_Dense", second, None, "torch.nn.modules.linear.Identity")
    write_modules(folder, ("Transformer", ""), ("Pooling", "1_Pooling"), ("Dense", "2_Dense"), ("Dense", "3_Dense"))
    model = load(folder, tmp_path)
    assert model.vector_width == 8
    got = vectors(model, TEXTS)
    assert distance(got, np.tanh(plain @ first.T + bias) @ second.T) < VECTORS
    assert distance(got, (plain @ first.T + bias) @ second.T) > 1e-2


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({"pooling_mode_max_tokens": True}, "key pooling.pooling_mode_max_tokens: true, expected one of mean"),
        ({"pooling_mode_mean_sqrt_len_tokens": True}, "pooling_mode_mean_sqrt_len_tokens"),
        ({"pooling_mode_cls_token": True}, "true beside another kind of pooling"),
        ({"include_prompt": False}, "key pooling.include_prompt: false, expected true"),
        ({"pooling_mode": "max"}, "key pooling.pooling_mode: max"),
        ({"pooling_mode": ["mean", "cls"]}, "several kinds"),
    ],
)
def test_emb_1_a_pooling_that_imp_does_not_compute_is_refused_by_name(
    config: dict[str, Any], words: str, tmp_path: Path
) -> None:
    folder = TinyEncoder().write_folder(tmp_path / "model")
    write_pooling(folder, pooling_config("mean") | config)
    reason, message = refusal(folder)
    assert reason == "MODEL_UNSUPPORTED"
    assert words in message


@pytest.mark.parametrize("mode", ["mean", "cls"])
def test_emb_1_a_word_names_the_pooling_too(mode: str, tmp_path: Path) -> None:
    folder = TinyEncoder().write_folder(tmp_path / "model")
    write_pooling(folder, {"pooling_mode": mode})
    assert facts(inspected(folder))["pooling"] == mode


@pytest.mark.parametrize(
    ("pooling", "words"),
    [
        ("cls", "override pooling: cls, expected mean or last"),
        ("rank", "override pooling: rank, expected another kind"),
    ],
)
def test_emb_1_a_pooling_that_the_model_cannot_have_is_refused(pooling: str, words: str, tmp_path: Path) -> None:
    reason, message = refusal(decoder().write(tmp_path / "m.gguf"), pooling=pooling)
    assert reason == "OVERRIDE_INVALID"
    assert words in message
    with pytest.raises(_core.ModelError, match="override pooling: yes_no, known are mean, cls, last, rank"):
        overrides(pooling="yes_no")


def test_emb_1_an_override_of_rope_needs_a_rope(tmp_path: Path) -> None:
    reason, message = refusal(TinyEncoder().write_folder(tmp_path / "model"), rope_theta=1e4)
    assert (reason, "rotates no positions" in message) == ("OVERRIDE_INVALID", True)


@pytest.mark.parametrize(
    ("change", "reason", "words"),
    [
        ({"position_embedding_type": "relative_key"}, "MODEL_UNSUPPORTED", "key position_embedding_type: relative_key"),
        ({"hidden_act": "mish"}, "MODEL_UNSUPPORTED", "key hidden_act: mish, expected one of gelu"),
        ({"is_decoder": True}, "MODEL_UNSUPPORTED", "key is_decoder: true"),
        ({"type_vocab_size": 3}, "MODEL_UNSUPPORTED", "key type_vocab_size: 3, expected 2"),
        ({"max_position_embeddings": 200}, "MODEL_TENSOR", "position_embeddings.weight: 128 rows, expected one for"),
        ({"architectures": ["BertForTokenClassification"]}, "MODEL_UNSUPPORTED", "a classifier of tokens"),
    ],
)
def test_emb_1_an_encoder_that_imp_does_not_compute_is_refused(
    change: dict[str, Any], reason: str, words: str, tmp_path: Path
) -> None:
    folder = TinyEncoder().write_folder(tmp_path / "model")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    found = refusal(folder)
    assert found[0] == reason
    assert words in found[1]


def test_emb_1_missing_token_types_and_several_labels_are_refused(tmp_path: Path) -> None:
    contents = TinyEncoder().contents()
    del contents.tensors["token_types.weight"]
    assert refusal(contents.write(tmp_path / "m.gguf"))[0] == "MODEL_TENSOR"
    contents = TinyEncoder("rank").contents()
    output = contents.tensors["cls.output.weight"]
    contents.tensors["cls.output.weight"] = dataclasses.replace(output, values=np.repeat(output.values, 3, axis=0))
    reason, message = refusal(contents.write(tmp_path / "r.gguf"))
    assert reason == "MODEL_UNSUPPORTED"
    assert "3 labels, expected 1" in message


def test_emb_1_the_score_of_a_decoder_is_left_to_its_logits(tmp_path: Path) -> None:
    contents = decoder(pooling_type=4)
    assert load(contents.write(tmp_path / "m.gguf"), tmp_path).pooling == "none"
    rows = contents.tensors["token_embd.weight"].values
    for n, reason in ((2, ""), (1, "MODEL_UNSUPPORTED")):
        contents.tensors["cls.output.weight"] = dataclasses.replace(
            contents.tensors["token_embd.weight"], values=rows[:n]
        )
        path = contents.write(tmp_path / f"{n}.gguf")
        if reason:
            assert refusal(path)[0] == reason
        else:
            assert load(path, tmp_path).warnings == []


@pytest.mark.parametrize("device", GPU_KINDS)
def test_emb_1_a_gpu_refuses_vectors_by_their_op(device: str, tmp_path: Path) -> None:
    path = decoder(pooling_type=3).write(tmp_path / "m.gguf")
    with pytest.raises(_core.ModelError, match="cuda lacks the op mean_rows, which the model needs"):
        load(path, tmp_path, device=device)
