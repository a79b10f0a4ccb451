"""gpt-oss with 4-bit float experts, in the published format and in GGUF."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from imp_service import _core
from imp_service import _testing as core
from support.files.mxfp4_checkpoint import Parts, in_gguf, random_parts, values_of, write
from support.models.family_cases import CASES, peer_logits
from support.models.forward_runs import distance, load, logits, prompt, rms_distance
from support.models.tiny_models import TinyModel
from support.oracles.forward_bounds import float32_bound, int8_activations_bound

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

# Rows that consist of complete blocks.
SIZES = {"hidden_size": 64, "intermediate_size": 96}
CASE = dataclasses.replace(CASES["gpt_oss"], traits=CASES["gpt_oss"].traits | SIZES)
TINY = TinyModel(n_layers=3, hidden_size=64, ffn_size=96, n_heads=4, head_dim=16)
EXPERTS = ("gate_up_proj", "down_proj")


@dataclasses.dataclass
class Published:
    """A transformers model with the values of its 4-bit weights, and the tensors of its directory."""

    peer: Any
    config: dict[str, Any]
    tensors: Parts

    def parts(self, layer: int, name: str) -> tuple[np.ndarray, np.ndarray]:
        at = f"model.layers.{layer}.mlp.experts.{name}"
        return self.tensors[f"{at}_blocks"], self.tensors[f"{at}_scales"]


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Published:
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    peer, folder = CASE.peer(), tmp_path_factory.mktemp("saved")
    peer.save_pretrained(folder)
    tensors: Parts = {}
    with torch.no_grad():
        for name, parameter in peer.named_parameters():
            if not name.endswith(EXPERTS):
                tensors[name] = parameter.numpy().copy()
                continue
            n_experts, k, n = parameter.shape
            parts = random_parts(name, (n_experts, n, k))
            tensors |= parts
            both = [torch.from_numpy(part) for part in parts.values()]
            parameter.copy_(convert_moe_packed_tensors(*both, dtype=torch.float32))
    return Published(peer, json.loads((folder / "config.json").read_text()), tensors)


def test_mod_24_weights_are_those_of_transformers(published: Published, tmp_path: Path) -> None:
    """The decoded weights are equal bit for bit, for reads of any length."""
    file = _core.open_model_file(write(tmp_path, published.config, published.tensors))
    found = {tensor.name: tensor for tensor in file.tensors}
    assert not any(name.endswith(("_blocks", "_scales")) for name in found)
    for name, parameter in published.peer.named_parameters():
        if not name.endswith(EXPERTS):
            continue
        raw = core.read_tensor(file, name)
        expected = parameter.detach().numpy().swapaxes(1, 2)
        assert (found[name].dtype, found[name].shape) == ("mxfp4", expected.shape[::-1])
        decoded = gguf.quants.dequantize(np.frombuffer(raw, np.uint8), gguf.GGMLQuantizationType.MXFP4)
        np.testing.assert_array_equal(decoded, expected.ravel())
        pieces = [core.read_tensor(file, name, at, min(1001, len(raw) - at)) for at in range(0, len(raw), 1001)]
        assert b"".join(pieces) == raw
    file.check()


def test_mod_24_logits_equal_those_of_transformers(published: Published, tmp_path: Path) -> None:
    """Both sides compute in float32."""
    path = write(tmp_path, published.config, published.tensors)
    tokens = prompt(100, 53)
    loaded = load(path, tmp_path, kv_dtype="f32", gemm=[("*", "reference")])
    assert loaded.warnings == []
    got, expected = logits(loaded, tokens), peer_logits(published.peer, tokens)
    assert distance(got, expected) < 2 * float32_bound(TINY)
    fast = logits(load(path, tmp_path, kv_dtype="f32"), tokens)
    assert rms_distance(fast, expected) < int8_activations_bound(TINY)


Change = Callable[[np.ndarray, np.ndarray], None]


def exchange_halves(blocks: np.ndarray, _: np.ndarray) -> None:
    blocks[...] = blocks << 4 | blocks >> 4


def exchange_gate_and_up(blocks: np.ndarray, scales: np.ndarray) -> None:
    for part in (blocks, scales):
        part[...] = part.reshape(part.shape[0], -1, 2, *part.shape[2:])[:, :, ::-1].reshape(part.shape)


def double(_: np.ndarray, scales: np.ndarray) -> None:
    scales[0] += 1


@pytest.mark.parametrize("change", [exchange_halves, exchange_gate_and_up, double])
def test_hon_1_other_blocks_are_seen(published: Published, change: Change, tmp_path: Path) -> None:
    changed = Published(
        published.peer, published.config, {name: part.copy() for name, part in published.tensors.items()}
    )
    change(*changed.parts(1, "gate_up_proj"))
    loaded = load(write(tmp_path, changed.config, changed.tensors), tmp_path, kv_dtype="f32", gemm=[("*", "reference")])
    tokens = prompt(100, 53)
    assert distance(logits(loaded, tokens), peer_logits(published.peer, tokens)) > 100 * float32_bound(TINY)


def test_mod_30_gguf_with_these_blocks_gives_the_same_bits(published: Published, tmp_path: Path) -> None:
    contents = CASE.exported(published.peer)
    contents.keys["gpt-oss.expert_feed_forward_length"] = 96
    for layer in range(3):
        for name, parts in (("gate_up_proj", ("gate", "up")), ("down_proj", ("down",))):
            blocks, scales = published.parts(layer, name)
            for i, part in enumerate(parts):
                tensor = contents.tensors[f"blk.{layer}.ffn_{part}_exps.weight"]
                of_part = blocks[:, i :: len(parts)], scales[:, i :: len(parts)]
                np.testing.assert_array_equal(tensor.values, values_of(*of_part))
                tensor.dtype, tensor.raw = "mxfp4", in_gguf(*of_part)
    tokens = prompt(100, 53)
    (tmp_path / "hub").mkdir()
    found = [
        logits(load(path, tmp_path, kv_dtype="f32"), tokens)
        for path in (contents.write(tmp_path / "m.gguf"), write(tmp_path / "hub", published.config, published.tensors))
    ]
    np.testing.assert_array_equal(*found)
