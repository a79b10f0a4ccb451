"""Files of Gemma 4's assistants that are wrong: each is refused with what was found and what was expected."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from imp_service import _core
from support.files.gguf_contents import GgufContents, Tensor
from support.files.safetensors_writer import write_tensors
from support.kernels.devices import GPU_KINDS
from support.models.head_runs import load_path
from support.models.tiny_assistant import tiny_assistant
from support.models.tiny_models import tiny

HEAD = tiny_assistant()
CLUSTERED = dataclasses.replace(HEAD, n_clusters=17)


def key(name: str, value: Any) -> Callable[[GgufContents], None]:
    return lambda contents: contents.keys.update({name: value})


def without(name: str) -> Callable[[GgufContents], None]:
    return lambda contents: contents.tensors.pop(name) and None


def tensor(name: str, values: NDArray[np.float32]) -> Callable[[GgufContents], None]:
    return lambda contents: contents.tensors.update({name: Tensor(values)})


ZEROS = np.zeros((24, 80), np.float32)
# By what is wrong: a change of the file, reason and text of the refusal.
REFUSED: dict[str, tuple[Callable[[GgufContents], None], str, str]] = {
    "the width of another model": (
        key("gemma4-assistant.embedding_length_out", 48), "MODEL_CONFIG",
        "embedding_length_out: 48, expected the model's hidden size 40",
    ),
    "no width": (lambda contents: contents.keys.pop("gemma4-assistant.embedding_length_out") and None,
                 "MODEL_KEY", "embedding_length_out"),
    "another vocabulary": (
        tensor("token_embd.weight", np.zeros((52, 24), np.float32)), "MODEL_CONFIG",
        "token_embd.weight: 52 rows, expected the model's 51 tokens",
    ),
    "another number of draft layers": (
        key("gemma4-assistant.nextn_predict_layers", 2), "MODEL_UNSUPPORTED", "nextn_predict_layers: 2, expected 3"
    ),
    "layers with keys": (
        key("gemma4-assistant.attention.shared_kv_layers", 2), "MODEL_UNSUPPORTED", "shared_kv_layers: 2, expected 3"
    ),
    "heads of keys": (
        key("gemma4-assistant.attention.head_count_kv", [1, 2, 1]), "MODEL_CONFIG",
        "layer 0: 1 heads of 16 for keys and values, expected the model's, 2 heads of 16",
    ),
    "another rope": (
        key("gemma4-assistant.rope.freq_base", 5e5), "MODEL_CONFIG",
        "rope: theta 500000 over 32 elements, expected the model's, theta 1e+06 over 32 elements",
    ),
    "another windowed rope": (key("gemma4-assistant.rope.freq_base_swa", 5e3), "MODEL_CONFIG", "windowed rope: theta"),
    "experts": (key("gemma4-assistant.expert_count", 4), "MODEL_UNSUPPORTED", "expert_count: 4, expected no experts"),
    "an embedding of layers": (
        key("gemma4-assistant.embedding_length_per_layer_input", 8), "MODEL_UNSUPPORTED",
        "embedding_length_per_layer_input: 8, expected 0",
    ),
    "a soft cap": (
        key("gemma4-assistant.final_logit_softcapping", 30.0), "MODEL_UNSUPPORTED", "final_logit_softcapping: 30"
    ),
    "no projection": (
        without("nextn.pre_projection.weight"), "MODEL_TENSOR",
        "nextn.pre_projection.weight: missing, expected [80, 24]",
    ),
    "no second projection": (
        without("nextn.post_projection.weight"), "MODEL_TENSOR",
        "nextn.post_projection.weight: missing, expected [24, 40]",
    ),
    "a narrow projection": (
        tensor("nextn.pre_projection.weight", ZEROS[:, :40]), "MODEL_TENSOR",
        "nextn.pre_projection.weight: shape [40, 24], expected [80, 24]",
    ),
    "no query": (without("blk.1.attn_q.weight"), "MODEL_TENSOR", "blk.1.attn_q.weight: missing, expected [24, 64]"),
    "keys": (
        tensor("blk.1.attn_k.weight", ZEROS), "MODEL_TENSOR",
        "blk.1.attn_k.weight: shape [80, 24], expected no such tensor in a draft head",
    ),
    "one more layer": (
        tensor("blk.3.attn_q.weight", ZEROS), "MODEL_TENSOR", "expected no such tensor in a draft head"
    ),
    "NaN": (
        tensor("output_norm.weight", np.full(24, np.nan, np.float32)), "MODEL_NONFINITE",
        "output_norm.weight: element 0 is",
    ),
    "an older layout": (
        key("general.architecture", "gemma4_assistant"), "MODEL_UNSUPPORTED",
        "gemma4_assistant, an older layout of Gemma 4's assistant, expected gemma4-assistant: convert it again",
    ),
    "a model": (
        key("general.architecture", "gemma4"), "MODEL_UNSUPPORTED",
        "general.architecture: gemma4, expected gemma4-assistant",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_spd_13_a_wrong_file_is_refused(what: str, tmp_path: Path) -> None:
    change, reason, text = REFUSED[what]
    contents = HEAD.contents()
    change(contents)
    with pytest.raises(_core.ModelError) as raised:
        load_path(HEAD.model.write(tmp_path / "m.gguf"), contents.write(tmp_path / "head.gguf"))
    assert text in str(raised.value)
    assert "head.gguf: " in str(raised.value)
    assert raised.value.reason == reason


# Changes of config.json and of tensors of a directory.
REFUSED_DIRECTORIES: dict[str, tuple[dict[str, Any], dict[str, NDArray[Any] | None], str]] = {
    "the width of another model": (
        {"backbone_hidden_size": 48}, {}, "backbone_hidden_size: 48, expected the model's hidden size 40"
    ),
    "clusters of unequal size": ({"num_centroids": 16}, {}, "num_centroids: 16, expected a divisor of the 51 tokens"),
    "too many clusters": (
        {"centroid_intermediate_top_k": 18}, {}, "centroid_intermediate_top_k: 18, expected at most the 17 centroids"
    ),
    "no centroids": (
        {}, {"masked_embedding.centroids.weight": None}, "masked_embedding.centroids.weight: missing, expected [24, 17]"
    ),
    "no tokens of clusters": (
        {}, {"masked_embedding.token_ordering": None},
        "masked_embedding.token_ordering: missing, expected 51 integers of 64 bits",
    ),
    "a token twice": (
        {}, {"masked_embedding.token_ordering": np.zeros(51, np.int64)},
        "masked_embedding.token_ordering: element 1 is 0, expected a token that no row before it has",
    ),
    "a token beyond the vocabulary": (
        {}, {"masked_embedding.token_ordering": np.arange(1, 52)}, "element 50 is 51, expected 0 to 50"
    ),
    "experts": ({"text_config": {"enable_moe_block": True}}, {}, "enable_moe_block: true, expected false"),
    "an embedding of layers": (
        {"text_config": {"hidden_size_per_layer_input": 8}}, {}, "hidden_size_per_layer_input: 8, expected 0"
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED_DIRECTORIES)
def test_spd_13_a_wrong_directory_is_refused(what: str, tmp_path: Path) -> None:
    keys, tensors, text = REFUSED_DIRECTORIES[what]
    folder = CLUSTERED.write_directory(tmp_path / "head")
    config = CLUSTERED.config()
    text_config = config["text_config"] | keys.get("text_config", {})
    (folder / "config.json").write_text(json.dumps(config | keys | {"text_config": text_config}))
    stored = {name: values for name, values in (CLUSTERED.hf_tensors() | tensors).items() if values is not None}
    write_tensors(folder / "model.safetensors", stored)
    with pytest.raises(_core.ModelError) as raised:
        load_path(CLUSTERED.model.write(tmp_path / "m.gguf"), folder)
    assert text in str(raised.value)


def test_spd_13_a_model_of_another_family_or_kind_is_refused(tmp_path: Path) -> None:
    path = HEAD.write(tmp_path / "head.gguf")
    for family in ("gemma3", "llama"):
        with pytest.raises(_core.ModelError, match=f"the assistant of a Gemma 4, expected a head for {family}"):
            load_path(tiny(family).write(tmp_path / f"{family}.gguf"), path)
    without_windows = tiny_assistant(pattern=1, window=0).model.write(tmp_path / "full.gguf")
    with pytest.raises(_core.ModelError, match="layer 0: a window, expected the kind of some layer of the model"):
        load_path(without_windows, path)


def test_spd_13_an_assistant_is_no_model(tmp_path: Path) -> None:
    for path in (HEAD.write(tmp_path / "head.gguf"), HEAD.write_directory(tmp_path / "head")):
        with pytest.raises(_core.ModelError, match=r"a draft head without its model; .* as speculation\.head"):
            load_path(path)


@pytest.mark.parametrize("device", GPU_KINDS)
def test_spd_13_an_assistant_on_a_gpu_is_refused_by_name(device: str, tmp_path: Path) -> None:
    model, path = HEAD.model.write(tmp_path / "m.gguf"), HEAD.write(tmp_path / "head.gguf")
    with pytest.raises(_core.ModelError, match="draft head on device cuda, expected cpu"):
        load_path(model, path, device=device, unvalidated_kernels=True, kv_dtype="f16")
