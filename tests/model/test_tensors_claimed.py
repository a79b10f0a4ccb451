"""Every tensor is claimed exactly once: one that is missing, left over, of another shape or type is refused by name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from imp_service import _core
from support.files.gguf_contents import GgufContents, Tensor
from support.models.forward_runs import load, logits, prompt
from support.models.tiny_models import FAMILIES, TinyModel, tiny


def two_layers(family: str) -> TinyModel:
    """One of each kind, if there are two."""
    return tiny(family, n_layers=2, pattern=2 if tiny(family).family.linear_period else 0)


NAN, INF = float("nan"), float("inf")
MODELS = {family: two_layers(family) for family in FAMILIES} | {
    "llama_full": tiny("llama", n_layers=2, output_bias=True, rope_factors=(1.0, 2.0, 3.0, 4.0))
}
TENSORS = [(name, tensor) for name, model in MODELS.items() for tensor in model.tensors()]


def refusal(contents: GgufContents, folder: Path) -> tuple[str, str]:
    with pytest.raises(_core.ModelError) as info:
        load(contents.write(folder / "m.gguf"), folder)
    return info.value.reason, info.value.message


def shape_of(tensor: Tensor) -> str:
    return str(list(tensor.values.shape[::-1]))


def makes_another_model(model: TinyModel, name: str) -> bool:
    """Tensors without which the model is whole: a head that is the embedding, no factors, values made of keys."""
    of_gemma4 = model.architecture == "gemma4" and name.endswith(("attn_v.weight", "layer_output_scale.weight"))
    return of_gemma4 or name in ("output.weight", "rope_freqs.weight")


def optional(model: TinyModel, name: str) -> bool:
    """Tensors of layer 0 that say what all layers have: biases, factors of experts. Gate and up in one tensor."""
    kinds = ("bias",) if model.output_bias else ("ffn_down_exps.scale",)
    return (name.startswith("blk.0.") and name.endswith(kinds)) or name.endswith("ffn_gate_up_exps.weight")


@pytest.mark.long
@pytest.mark.parametrize(("kind", "name"), TENSORS)
def test_mod_6_m36_a_tensor_is_removed(kind: str, name: str, tmp_path: Path) -> None:
    model = MODELS[kind]
    contents = model.contents()
    shape = shape_of(contents.tensors.pop(name))
    if makes_another_model(MODELS[kind], name):
        load(contents.write(tmp_path / "m.gguf"), tmp_path)  # another model, and a whole one
        return
    reason, message = refusal(contents, tmp_path)
    assert reason == "MODEL_TENSOR"
    if not optional(model, name):
        assert message.startswith(f"m.gguf: tensor {name}: missing, expected ")
        # What is multiplied with is a matrix, if of one row.
        assert shape in message or shape.replace("]", ", 1]") in message or name == "token_embd.weight"


def transposed(tensor: Tensor) -> Tensor:
    return Tensor(np.ascontiguousarray(tensor.values.T))


def one_more_row(tensor: Tensor) -> Tensor:
    return Tensor(np.concatenate([tensor.values, tensor.values[:1]]))


def one_less_row(tensor: Tensor) -> Tensor:
    return Tensor(tensor.values[:-1])


def one_more_column(tensor: Tensor) -> Tensor:
    return Tensor(np.concatenate([tensor.values, tensor.values[..., :1]], axis=-1))


def of_higher_rank(tensor: Tensor) -> Tensor:
    return Tensor(np.stack([tensor.values, tensor.values]))


CHANGES = (transposed, one_more_row, one_less_row, one_more_column, of_higher_rank)


def changes_of(kind: str, name: str) -> list[Callable[[Tensor], Tensor]]:
    """Rows beyond the tokens are padding, and a vector has no other side to turn or to lengthen."""
    is_vector = MODELS[kind].tensors()[name].values.ndim == 1
    pointless = {one_more_row} if name == "token_embd.weight" else {transposed, one_more_column} if is_vector else set()
    return [change for change in CHANGES if change not in pointless]


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "name", "change"),
    [
        (kind, name, change)
        for kind, name in TENSORS
        if kind in ("gemma3", "llama_full")
        for change in changes_of(kind, name)
    ],
)
def test_mod_6_m36_a_tensor_of_another_shape(
    kind: str, name: str, change: Callable[[Tensor], Tensor], tmp_path: Path
) -> None:
    contents = MODELS[kind].contents()
    right = contents.tensors[name]
    contents.tensors[name] = wrong = change(right)
    assert shape_of(wrong) != shape_of(right)
    reason, message = refusal(contents, tmp_path)
    assert reason == "MODEL_TENSOR"
    assert name in message
    assert shape_of(wrong) in message
    if name != "token_embd.weight":
        assert message.endswith(f"expected {shape_of(right)}")


@pytest.mark.parametrize("name", ["blk.1.attn_norm.weight", "output_norm.weight", "blk.0.attn_q.bias"])
def test_m36_a_vector_in_a_type_that_does_not_fit(name: str, tmp_path: Path) -> None:
    contents = tiny("qwen2", hidden_size=64, n_heads=4, head_dim=16).contents()
    contents.tensors[name].dtype = "q8_0"
    reason, message = refusal(contents, tmp_path)
    assert (reason, message) == (
        "MODEL_TENSOR", f"m.gguf: tensor {name}: type q8_0, expected one of f32, f16, bf16",
    )  # fmt: skip


@pytest.mark.parametrize(
    "name",
    ["blk.1.attn_q_norm.weight", "blk.0.attn_q.bias", "blk.2.attn_norm.weight", "blk.1.ffn_gate_exps.weight",
     "blk.1.attn_rot_embd", "output_norm.bias", "token_embd.bias", "rope_factors_other.weight", "blk.7.extra"],
)  # fmt: skip
def test_mod_6_a_tensor_left_over_among_the_models_own(name: str, tmp_path: Path) -> None:
    contents = tiny("gemma2" if "bias" in name else "llama", n_layers=2).contents()
    contents.tensors[name] = Tensor(np.array([1.0, 2.0, 3.0], np.float32))
    assert refusal(contents, tmp_path) == (
        "MODEL_TENSOR", f"m.gguf: tensor {name}: shape [3], expected no such tensor in this architecture",
    )  # fmt: skip


def test_mod_6_a_renamed_tensor_is_missing_and_left_over(tmp_path: Path) -> None:
    contents = tiny("llama").contents()
    contents.tensors["blk.0.attention_q.weight"] = contents.tensors.pop("blk.0.attn_q.weight")
    assert refusal(contents, tmp_path) == (
        "MODEL_TENSOR", "m.gguf: tensor blk.0.attn_q.weight: missing, expected [40, 48]",
    )  # fmt: skip


def test_m34_a_stranger_changes_nothing_and_is_named(tmp_path: Path) -> None:
    model = tiny("llama")
    contents = model.contents()
    plain = load(contents.write(tmp_path / "plain.gguf"), tmp_path)
    for i in range(6):
        contents.tensors[f"mtp.{i}"] = Tensor(np.full(5, NAN, np.float32))
    with_strangers = load(contents.write(tmp_path / "m.gguf"), tmp_path)
    assert with_strangers.warnings == [
        "6 tensors are not part of the model and not read: mtp.0, mtp.1, mtp.2, mtp.3, ...",
    ]
    tokens = prompt(20, model.vocab_size)
    assert np.array_equal(logits(with_strangers, tokens), logits(plain, tokens))


@pytest.mark.parametrize("bad", [NAN, INF, -INF])
@pytest.mark.parametrize(
    "name", ["blk.0.attn_norm.weight", "output_norm.weight", "blk.1.attn_k.bias", "rope_freqs.weight"]
)
def test_m44_m45_small_tensors_are_always_scanned(name: str, bad: float, tmp_path: Path) -> None:
    contents = MODELS["llama_full"].contents()
    contents.tensors[name].values[3] = bad
    reason, message = refusal(contents, tmp_path)
    assert reason == "MODEL_NONFINITE"
    assert message.startswith(f"m.gguf: tensor {name}: element 3 is ")


def test_m44_large_tensors_are_scanned_where_asked_for(tmp_path: Path) -> None:
    contents = tiny("llama").contents()
    contents.tensors["blk.1.ffn_up.weight"].values[2, 5] = INF
    path = contents.write(tmp_path / "m.gguf")
    load(path, tmp_path)
    with pytest.raises(_core.ModelError, match=r"blk\.1\.ffn_up\.weight.*85") as info:
        _core.open_model_file(path).check(values=True)
    assert info.value.reason == "MODEL_NONFINITE"


def test_padding_rows_are_never_drawn(tmp_path: Path) -> None:
    contents = tiny("qwen2").contents()
    contents.keys["tokenizer.ggml.tokens"] = contents.keys["tokenizer.ggml.tokens"][:48]
    loaded = load(contents.write(tmp_path / "m.gguf"), tmp_path)
    assert (loaded.vocab_size, loaded.suppressed_tokens) == (51, [48, 49, 50])


def test_progress_is_reported_in_bytes_of_the_file(tmp_path: Path) -> None:
    contents = tiny("llama").contents()
    seen: list[tuple[int, int]] = []
    _core.Model.load(
        _core.open_model_file(contents.write(tmp_path / "m.gguf")), kv_bytes=1 << 20,
        progress=lambda done, total: seen.append((done, total)),
    )  # fmt: skip
    total = sum(tensor.encoded().nbytes for tensor in contents.tensors.values())
    assert {all_bytes for _, all_bytes in seen} == {total}
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert len(seen) > 2
    assert seen[-1][0] == total


def test_what_progress_raises_ends_the_load(tmp_path: Path) -> None:
    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    file = _core.open_model_file(tiny("llama").write(tmp_path / "m.gguf"))
    with pytest.raises(KeyboardInterrupt):
        _core.Model.load(file, kv_bytes=1 << 20, progress=stop)
