"""Writes what a folder of sentence-transformers has besides the model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.safetensors_writer import write_tensors

FLAGS = {"mean": "mean_tokens", "cls": "cls_token", "last": "lasttoken"}


def pooling_config(pooling: str) -> dict[str, Any]:
    return {f"pooling_mode_{flag}": kind == pooling for kind, flag in FLAGS.items()}


def write_modules(folder: Path, *modules: tuple[str, str], at: str = "sentence_transformers.models.") -> None:
    """Writes modules.json. modules: (type, path) of each."""
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": at + kind} for i, (kind, path) in enumerate(modules)
    ]  # fmt: skip
    (folder / "modules.json").write_text(json.dumps(listed))


def write_pooling(folder: Path, pooling: str | dict[str, Any]) -> Path:
    """Makes the folder of a model that of an embedding model."""
    config = pooling_config(pooling) if isinstance(pooling, str) else pooling
    (folder / "1_Pooling").mkdir(exist_ok=True)
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(config))
    write_modules(folder, ("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize"))
    return folder


def write_dense(
    folder: Path, name: str, weight: NDArray[np.float32], bias: NDArray[np.float32] | None, activation: str
) -> None:
    (folder / name).mkdir(exist_ok=True)
    config = {
        "in_features": weight.shape[1], "out_features": weight.shape[0], "bias": bias is not None,
        "activation_function": activation,
    }  # fmt: skip
    (folder / name / "config.json").write_text(json.dumps(config))
    tensors = {"linear.weight": weight} | ({} if bias is None else {"linear.bias": bias})
    write_tensors(folder / name / "model.safetensors", tensors)
