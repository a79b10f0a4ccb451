"""Tiny models and draws whose bits tests/data/arithmetic.json has, and what a change of these bits means."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from imp_service import _core
from imp_service.tables import KV_TYPES
from support.models.forward_runs import Cache, load, prompt
from support.models.tiny_models import FAMILIES, TinyModel, tiny
from support.models.tiny_tower import TinyTower
from support.models.tiny_towers import TOWERS, encoded, open_tower
from support.run.needed import TESTING, needs

PATH = Path(__file__).resolve().parents[2] / "data" / "arithmetic.json"
DRAWS = "draws"
# Beyond the first split of attention, and no multiple of a block.
PREFILL, DECODE = 300, 3
N_DRAWS, N_ROWS = 10_000, 100
DIGITS = 16
# A shape that every weight type can have.
WIDE: dict[str, Any] = {"hidden_size": 256, "ffn_size": 256, "n_heads": 4, "head_dim": 64, "n_layers": 2}
# Rows of whole blocks, so that each family can have quantized weights.
BLOCKS: dict[str, Any] = {"hidden_size": 64, "ffn_size": 96, "n_heads": 4}
NOT_OF_BLOCKS = "gemma4"
# A type of directories.
NOT_OF_GGUF = "f8_e4m3"
EXPERTS: dict[str, Any] = {"expert_ffn_size": 32}
SHARED: dict[str, Any] = {"shared_ffn_size": 64}
TOWER_FAMILIES, TOWER_TYPES = ("smolvlm", "qwen3_vl", "gemma3", "gemma4"), ("f16", "bf16", "q8_0")
TOWER_BLOCKS: dict[str, Any] = {"hidden_size": 64, "ffn_size": 96, "n_heads": 2}
LINEAR: dict[str, Any] = {"delta_value_heads": 4, "delta_value_dim": 16}


@dataclasses.dataclass(frozen=True)
class Result:
    """The digest of what a case reads, and that of the bits that come of it."""

    source: str
    bits: str


Results = Mapping[str, Result]


@dataclasses.dataclass(frozen=True)
class Stored:
    """The content of the file: the results of one revision, and those of the one before it."""

    revision: int
    results: Results
    before: Results


@dataclasses.dataclass(frozen=True)
class Case:
    """A model with a type of cached keys and values."""

    model: TinyModel
    kv_dtype: str | None = None

    def result(self, folder: Path, isa: str, **overrides: Any) -> Result:
        """The bits of the logits of every row of a prefill, and of some rows that are evaluated alone."""
        path = self.model.write(folder / "m.gguf")
        model = load(path, folder, isa=isa, kv_dtype=self.kv_dtype, **overrides)
        tokens = prompt(PREFILL + DECODE, self.model.vocab_size)
        cache = Cache(model, n_blocks=32)
        blocks = cache.blocks(len(tokens))
        rows = cache.run((tokens[:PREFILL], 0, blocks))
        rows += [part for at in range(PREFILL, len(tokens)) for part in cache.run((tokens[at : at + 1], at, blocks))]
        return Result(digest(path.read_bytes()), digest(np.concatenate(rows).astype("<f4").tobytes()))


@dataclasses.dataclass(frozen=True)
class TowerCase:
    """A vision tower with a type of matrices."""

    tower: TinyTower
    matrix_type: str

    def result(self, folder: Path, isa: str) -> Result:
        """The bits of the cells of a part."""
        path = self.tower.projector(self.matrix_type).write(folder / "mmproj.gguf")
        cells = encoded(open_tower(path, self.tower, kv_type=None, isa=isa), self.tower.pixels())
        return Result(digest(path.read_bytes()), digest(cells.astype("<f4").tobytes()))


def tower_cases() -> dict[str, TowerCase]:
    """Each kind of tower with each type that its matrices may have in a projector."""
    towers = {family: dataclasses.replace(TOWERS[family], **TOWER_BLOCKS) for family in TOWER_FAMILIES}
    return {f"tower {family} {kind}": TowerCase(towers[family], kind) for family in towers for kind in TOWER_TYPES}


def cases() -> dict[str, Case]:
    """Each family with floats and with quantized weights, each weight type, each type of the cache."""
    found = {f"{family} f32": Case(tiny(family)) for family in FAMILIES}
    quantized = [family for family in FAMILIES if family != NOT_OF_BLOCKS]
    found |= {f"{family} q8_0": Case(of_blocks(tiny(family, dtype="q8_0", **BLOCKS))) for family in quantized}
    found |= {
        f"wide {dtype}": Case(tiny("llama", dtype=dtype, **WIDE)) for dtype in _core.dtypes() if dtype != NOT_OF_GGUF
    }
    found |= {f"wide f32 {kind}": Case(tiny("llama", **WIDE), kind) for kind in KV_TYPES}
    return found


def of_blocks(model: TinyModel) -> TinyModel:
    """The model with experts and linear attention of whole blocks, if it has them."""
    experts = EXPERTS if model.n_experts else {}
    shared = SHARED if model.shared_ffn_size else {}
    linear = LINEAR if model.delta_value_heads else {}
    return dataclasses.replace(model, **experts, **shared, **linear)


def draws(isa: str) -> Result:
    """The bits of draws with random options from random rows."""
    with needs(TESTING):
        import imp_service._testing as core
    from support.kernels.sampler_requests import normal_rows

    rows = normal_rows(2, N_ROWS)
    found = core.sample(core.Device(isa=isa), rows, requests())
    return Result(digest(rows.tobytes() + json.dumps(requests()).encode()), digest(repr(found).encode()))


@cache
def requests() -> list[dict[str, Any]]:
    """Random options."""
    from support.kernels.sampler_requests import VOCAB, random_fields

    rng = np.random.default_rng(1)
    return [{"row": i % N_ROWS, "logprob": True, **random_fields(rng, VOCAB)} for i in range(N_DRAWS)]


def results(isa: str = "auto", names: Sequence[str] = ()) -> dict[str, Result]:
    """The results of these cases, by default of all. On every instruction set they are the same."""
    known: Mapping[str, Case | TowerCase] = {**cases(), **tower_cases()}
    with tempfile.TemporaryDirectory() as folder:
        found = {name: known[name].result(Path(folder), isa) for name in names or known}
    return {**found, DRAWS: draws(isa)}


def changed(found: Results, stored: Results) -> list[str]:
    """The cases with the same source and other bits."""
    return [
        name
        for name, each in found.items()
        if name in stored and each.source == stored[name].source and each.bits != stored[name].bits
    ]


class WrongRevision(Exception):
    """kArithmeticRevision does not fit the bits."""


def renewed(found: Results, stored: Stored, revision: int) -> Stored:
    """What the file must have. `revision` is that of the code. Raises WrongRevision."""
    bits = changed(found, stored.results)
    if revision == stored.revision:
        if bits:
            raise WrongRevision(
                f"raise kArithmeticRevision in csrc/model/arithmetic.h: other bits in {', '.join(bits)}"
            )
        return Stored(revision, found, stored.before)
    if not bits:
        raise WrongRevision(f"kArithmeticRevision is {revision}, and no bit differs from those of {stored.revision}")
    return Stored(revision, found, stored.results)


def read() -> Stored:
    """The stored bits."""
    content = json.loads(PATH.read_text(encoding="utf-8"))

    def results_of(key: str) -> Results:
        return {name: Result(*each.split()) for name, each in content[key].items()}

    return Stored(content["revision"], results_of("results"), results_of("before"))


def written(stored: Stored) -> str:
    """The content of the file."""

    def lines_of(given: Results) -> Mapping[str, str]:
        return {name: f"{each.source} {each.bits}" for name, each in given.items()}

    content = {"revision": stored.revision, "results": lines_of(stored.results), "before": lines_of(stored.before)}
    return json.dumps(content, indent=1) + "\n"


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:DIGITS]
