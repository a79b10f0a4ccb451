"""What `transformers` computes for the models of the parity tests, read from tests/data/transformers.json.

`python tests/parity/store_results.py` writes the table. The names and shapes of a model's tensors are in the table as
`layouts`, and its weights follow from them (`hf_weights.filled`). So tests build the same models without PyTorch.
"""

from __future__ import annotations

import dataclasses
import json
import string
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.files.hf_weights import Weights, filled
from support.models.cell_peers import CELL_CASES
from support.models.family_cases import CASES, SIZES, FamilyCase, bound_of
from support.models.family_text import SMALL
from support.models.family_variants import CONTEXTS, VARIANTS, WRAPPED, YARNS, case_of_context, case_of_yarn
from support.models.forward_runs import distance, prompt
from support.models.linear_attention_cases import LINEAR_CASES
from support.models.text_cases import CASES as TEXT_CASES
from support.models.tiny_towers import TOWERS

PATH = Path(__file__).resolve().parents[2] / "data" / "transformers.json"
VOCABULARY: int = SIZES["vocab_size"]
# How many positions of a prompt have logits in the table, and how many logits each.
N_PLACES, N_LOGITS = 6, 5
# One for each token of the vocabulary.
LETTERS = f"{string.ascii_letters}_"
# Keys of config.json that do not change the result.
NO_EFFECT = (
    "transformers_version", "dtype", "use_cache", "initializer_range", "attention_dropout", "architectures",
    "vision_config", "audio_config", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise",
)  # fmt: skip


@dataclasses.dataclass(frozen=True)
class StoredCase:
    case: FamilyCase
    n_tokens: int = 100
    max_context: int = 0  # 0: that of the model
    has_text: bool = False

    @property
    def tokens(self) -> list[int]:
        return prompt(self.n_tokens, VOCABULARY)

    @property
    def places(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The positions of the logits that the table has, and their tokens."""
        return places_of(self.n_tokens)


def places_of(n_rows: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Some of the rows, and tokens: other ones in each row."""
    rows = np.linspace(1, n_rows - 1, N_PLACES).astype(np.int64)
    return rows[:, None], (7 * rows[:, None] + 9 * np.arange(N_LOGITS)) % VOCABULARY


FAMILIES = CASES | LINEAR_CASES
STORED: dict[str, StoredCase] = {
    **{name: StoredCase(case, has_text=True) for name, case in FAMILIES.items()},
    **{name: StoredCase(case) for name, (case, _) in VARIANTS.items()},
    **{f"{name}_that_sees": StoredCase(case) for name, case in WRAPPED.items()},
    **{f"yarn_{name}": StoredCase(case_of_yarn(traits), n_tokens=200) for name, traits in YARNS.items()},
    **{name: StoredCase(case_of_context(name), n_tokens=context, max_context=context)
       for name, (_, context, _) in CONTEXTS.items()},
}  # fmt: skip


@cache
def table() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(PATH.read_text())
    return found


def entry(name: str) -> dict[str, Any]:
    found: dict[str, Any] = table()["cases"][name]
    return found


def model_types() -> set[str]:
    return {each["config"]["model_type"] for kind in ("cases", "vectors") for each in table()[kind].values()}


def full_config(stored: dict[str, Any]) -> dict[str, Any]:
    """Adds the sizes that all models have."""
    sizes = {key: value for key, value in SIZES.items() if key != "attn_implementation"}
    if "text_config" in stored:
        return stored | {"text_config": sizes | stored["text_config"]}
    return sizes | stored


def shapes(layout: dict[str, Any], n_layers: int) -> Iterator[tuple[str, str | float]]:
    """Yields each tensor with its shape, or with its value. Layers have numbers, or `*` for all."""
    for name, found in layout.items():
        if not isinstance(found, dict):
            yield name, found
            continue
        before, numbers = name.rsplit(".", 1)
        for layer in range(n_layers) if numbers == "*" else numbers.split(","):
            yield from ((f"{before}.{layer}.{after}", shape) for after, shape in found.items())


def weights(name: str, vocab_size: int = VOCABULARY) -> Weights:
    """Returns the model of a case, or the same one with more tokens."""
    stored = entry(name)
    config = full_config(stored["config"])
    text = config.get("text_config", config)
    text |= {key: vocab_size for key in ("vocab_size", "vocab_size_per_layer_input") if key in text}
    tensors = {}
    for tensor, shape in shapes(table()["layouts"][stored["layout"]], text["num_hidden_layers"]):
        if isinstance(shape, float):
            tensors[tensor] = np.array(shape, np.float32)
        else:
            sizes = tuple(vocab_size if size == "V" else int(size) for size in shape.split())
            tensors[tensor] = filled(config["model_type"], tensor, sizes).astype(np.float32)
    return Weights(config, tensors, stored.get("frequencies", []))


def places_of_vectors(name: str) -> list[int]:
    """Some of the numbers of a vector."""
    return [0] if TEXT_CASES[name].pooling == "rank" else list(range(1, 64, 11))


def vector_weights(name: str) -> Weights:
    """Returns a model that makes vectors."""
    stored, tensors = table()["vectors"][name], {}
    config = stored["config"] | {"architectures": [TEXT_CASES[name].model]}
    for tensor, shape in shapes(stored["layout"], config["num_hidden_layers"]):
        assert isinstance(shape, str)  # narrows
        sizes = tuple(VOCABULARY if size == "V" else int(size) for size in shape.split())
        tensors[tensor] = filled(config["model_type"], tensor, sizes).astype(np.float32)
    return Weights(config, tensors, [])


def error_of_vectors(name: str, got: NDArray[Any]) -> float:
    """Returns the distance of vectors from those in the table."""
    return distance(got[:, places_of_vectors(name)], np.array(table()["vectors"][name]["vectors"]))


def text_weights(name: str) -> Weights:
    """Returns the model of a case that continues a text."""
    found = weights(name, table()["text"]["vocabulary"])
    [embedding] = [values for tensor, values in found.tensors.items() if tensor.endswith(".embed_tokens.weight")]
    embedding *= np.float32(SMALL)
    return found


def bound(name: str) -> float:
    return bound_of(full_config(entry(name)["config"]))


def error(name: str, got: NDArray[Any]) -> float:
    """Returns the distance from the logits in the table."""
    return distance(got[STORED[name].places], np.array(entry(name)["logits"]))


def error_of_cells(name: str, got: NDArray[Any]) -> float:
    """Returns the distance of a tile's cells from those in the table."""
    return distance(got[TOWERS[name].places], np.array(table()["towers"][name]))


def places_of_cells(name: str) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Those of the logits that the table has of a prompt with images."""
    return places_of(len(CELL_CASES[name].prompt.scored))


def error_of_cells_read(name: str, got: NDArray[Any]) -> float:
    """Returns the distance of a decoder's centred logits, of a prompt with images, from those in the table."""
    return distance(got[places_of_cells(name)], np.array(table()["images"][name]))


def error_at_end(name: str, got: NDArray[Any]) -> float:
    """Returns the distance of the last position's logits from those in the table."""
    return distance(got[STORED[name].places[1][-1]], np.array(entry(name)["logits"][-1]))


def lacking(name: str, got: NDArray[Any]) -> float:
    """Returns by how much the logits of the tokens that are most probable in the table are below the greatest ones."""
    best = got[np.arange(len(got)), [LETTERS.index(letter) for letter in entry(name)["best"]]]
    return float((got.max(axis=1) - best).max() / np.sqrt(np.mean(got**2)))
