"""Writes tests/data/transformers.json: what transformers computes for the models of the parity tests.

    python tests/parity/store_results.py

`test_stored_results.py` compares imp with the table, without PyTorch and transformers. `test_store_results.py` computes
the results again, and fails if the table differs from them by more than the roundings of another machine.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import defaultdict
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from support.files.hf_weights import Weights, weights_of
from support.models.cell_peers import CELL_CASES, peer_rows
from support.models.family_cases import SIZES, peer_logits
from support.models.family_text import PROMPT, continued, text_case, text_peer
from support.models.text_cases import CASES as TEXT_CASES
from support.models.text_cases import peer_vectors
from support.models.tiny_tower import TinyTower
from support.models.tiny_towers import TOWERS
from support.models.tower_peers import encoded_by_peer, tower_peer
from support.oracles.stored_results import (
    LETTERS,
    NO_EFFECT,
    PATH,
    STORED,
    VOCABULARY,
    StoredCase,
    full_config,
    places_of_cells,
    places_of_vectors,
)
from support.text.hub_tokenizers import library_of

DIGITS = 7  # of a logit
Layout = dict[str, str | float | dict[str, str | float]]


def layout_of(weights: Weights) -> Layout:
    """Returns the shapes of the tensors, or the value of a constant. Layers with equal shapes are one entry."""
    n_layers = weights.text["num_hidden_layers"]
    layers: dict[tuple[str, str, tuple[int, ...]], list[int]] = defaultdict(list)
    found: Layout = {}
    for name, values in weights.tensors.items():
        of_layer = re.fullmatch(r"(.*\blayers?)\.(\d+)\.(.*)", name)
        if of_layer is None:
            found[name] = shape_of(values)
        else:
            layers[of_layer[1], of_layer[3], values.shape].append(int(of_layer[2]))
    for (before, after, _), numbers in layers.items():
        written = "*" if len(numbers) == n_layers else ",".join(map(str, numbers))
        part = found.setdefault(f"{before}.{written}", {})
        assert isinstance(part, dict)  # narrows
        part[after] = shape_of(weights.tensors[f"{before}.{numbers[0]}.{after}"])
    return found


def shape_of(values: NDArray[np.float32]) -> str | float:
    return " ".join("V" if size == VOCABULARY else str(size) for size in values.shape) if values.ndim else float(values)


def stored_config(config: dict[str, Any]) -> dict[str, Any]:
    """Leaves out what has no effect, and the sizes that all models have."""

    def shortened(part: dict[str, Any]) -> dict[str, Any]:
        return {key: value for key, value in part.items() if key not in NO_EFFECT and SIZES.get(key, ...) != value}

    if "text_config" not in config:
        found = shortened(config)
    else:
        found = {key: value for key, value in config.items() if key not in NO_EFFECT}
        found["text_config"] = shortened(config["text_config"])
    text, original = (each.get("text_config", each) for each in (full_config(found), config))
    assert text.items() <= original.items(), "the configuration lacks one of the sizes"
    return found


def rounded(values: NDArray[np.float64]) -> list[Any]:
    return [rounded(row) if row.ndim else float(f"{row:.{DIGITS}g}") for row in values]


def result(stored: StoredCase) -> dict[str, Any]:
    """Returns the entry of a case, with its layout."""
    peer = stored.case.peer()
    weights, logits = weights_of(peer), peer_logits(peer, stored.tokens)
    found = {
        "config": stored_config(weights.config),
        "layout": layout_of(weights),
        "logits": rounded(logits[stored.places]),
        "best": "".join(LETTERS[token] for token in logits.argmax(axis=1)),
    }
    if weights.frequencies:
        found["frequencies"] = weights.frequencies
    return found


def text_of(stored: StoredCase, vocabulary: int, prompt: list[int]) -> list[int]:
    """Returns the tokens with which transformers continues a prompt."""
    return continued(text_peer(text_case(stored.case, vocabulary)), prompt)


def cells_of(tower: TinyTower) -> list[Any]:
    """Returns some numbers of the cells of a part."""
    return rounded(encoded_by_peer(tower_peer(tower), tower, tower.pixels())[tower.places])


def behind_images(name: str) -> list[Any]:
    """Returns some centred logits of a prompt with images."""
    case = CELL_CASES[name]
    return rounded(peer_rows(case.peer(), case.prompt)[places_of_cells(name)])


def vectors_of(name: str) -> dict[str, Any]:
    """Returns the entry of a model that makes vectors: some numbers of each."""
    case = TEXT_CASES[name]
    peer = case.peer()
    weights = weights_of(peer)
    config = {key: value for key, value in weights.config.items() if key not in NO_EFFECT}
    vectors = rounded(peer_vectors(case, peer)[:, places_of_vectors(name)])
    return {"config": config, "layout": layout_of(weights), "vectors": vectors}


def results() -> dict[str, Any]:
    """Returns the whole table. Cases with equal layouts share one, which has the name of the first."""
    import torch
    import transformers

    library = library_of("byte level")
    vocabulary, prompt = library.get_vocab_size(), library.encode(PROMPT, add_special_tokens=False).ids
    layouts: dict[str, Any] = {}
    cases = {}
    for name, stored in STORED.items():
        found = result(stored)
        layout = found["layout"]
        found["layout"] = next((other for other, known in layouts.items() if known == layout), name)
        layouts.setdefault(found["layout"], layout)
        if stored.has_text:
            found["text"] = text_of(stored, vocabulary, prompt)
        cases[name] = found
    return {
        "made_by": {"torch": torch.__version__, "transformers": transformers.__version__},
        "text": {"vocabulary": vocabulary, "prompt": prompt},
        "layouts": layouts,
        "cases": cases,
        "towers": {name: cells_of(tower) for name, tower in TOWERS.items()},
        "images": {name: behind_images(name) for name in CELL_CASES},
        "vectors": {name: vectors_of(name) for name in TEXT_CASES},
    }


def lines(value: Any, depth: int, indent: str = "") -> str:
    """Writes JSON with a line for each entry down to this depth."""
    if depth == 0 or not isinstance(value, dict):
        return json.dumps(value)
    inner = indent + " "
    entries = [f"{inner}{json.dumps(key)}: {lines(part, depth - 1, inner)}" for key, part in value.items()]
    return "{\n" + ",\n".join(entries) + f"\n{indent}}}"


def main() -> int:
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    absent = [package for package in ("torch", "transformers") if find_spec(package) is None]
    if absent:
        print(f"{Path(__file__).name}: {absent[0]} is not installed", file=sys.stderr)
        return 2
    PATH.write_text(lines(results(), 3) + "\n")
    print(f"{PATH}: {len(STORED)} cases, {PATH.stat().st_size} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
