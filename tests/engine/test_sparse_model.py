"""Sparse prefill of real models: its importance and its logits against float64, its keys against the dense ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core, _testing
from support.engine.script_engine import TurnedEngine
from support.models.forward_runs import distance, overrides, prompt
from support.models.tiny_models import TinyModel, tiny
from support.oracles.forward_bounds import float32_bound
from support.oracles.numpy_transformer import Array, NumpyLayer, NumpyTransformer, soft_cap
from support.oracles.sparse_oracle import CHUNK, LOOKAHEAD, chosen
from support.oracles.tolerances import IMPORTANCE_MARGIN

POOL = 13
N = 300
KEEP = 3000
MODEL = tiny("qwen3", n_layers=4, seed=1)
DRAFT = tiny("qwen3", n_layers=2, seed=2)


def load(folder: Path, *, model: TinyModel = MODEL, draft: TinyModel = DRAFT, **options: Any) -> Any:
    return _core.Model.load(
        _core.open_model_file(model.write(folder / "model.gguf")),
        draft=_core.open_model_file(draft.write(folder / "draft.gguf")), draft_scores_prompts=True,
        overrides=overrides(kv_dtype="f32"), **{"threads": 2, "kv_bytes": 1 << 22, **options},
    )  # fmt: skip


def engine_of(model: Any, **options: Any) -> TurnedEngine:
    given = {"n_blocks": model.n_blocks, "max_context": model.max_context, "sparse_prefill": True, **options}
    return TurnedEngine(_testing.ManualModelEngine(model, _core.EngineOptions(**given)))


def started(engine: TurnedEngine, tokens: Sequence[int], **given: Any) -> tuple[int, int]:
    """Runs a generation up to its first outputs; returns its sequence and ticket."""
    sequence = engine.sequence()
    given = {"sparse_policy": "sparse", "sparse_keep": KEEP, "max_outputs": 12, "logits": True, **given}
    ticket = engine.generate(tokens, sequence=sequence, **given)
    while len(engine.tokens(ticket)) < 3:
        engine.turn()
    return sequence, ticket


@dataclasses.dataclass(frozen=True)
class PartialRun:
    """A run that evaluated a part of its prompt, up to its first outputs."""

    history: list[int]  # all of its tokens
    positions: list[int]  # of its cells
    first_row: int  # of the cells: the one that gives the first output
    logits: Array  # of the first outputs

    @property
    def cells(self) -> list[int]:
        return [self.history[at] for at in self.positions]


def run_in_part(engine: TurnedEngine, tokens: Sequence[int]) -> PartialRun:
    sequence, ticket = started(engine, tokens)
    n_kept = engine.started(ticket).sparse.n_selected
    assert n_kept < len(tokens) / 2
    events = [e for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]
    logits = np.stack([event.logits for event in events[:3]])
    return PartialRun(engine.core.history(sequence), engine.core.positions(sequence), n_kept - 1, logits)


class Watched(NumpyTransformer):
    """Keeps how much attention the rows after a prompt pay to it: the greatest mean of 13, over heads and layers."""

    n_prompt: int
    mass: Array

    def attention(self, layer: NumpyLayer, x: Array, positions: Array) -> Array:
        if layer.delta is not None:
            return super().attention(layer, x, positions)
        q = self.rotated_heads(layer, x, "q", positions)[self.n_prompt :]
        k = self.rotated_heads(layer, x, "k", positions)[: self.n_prompt]
        k = np.repeat(k, q.shape[1] // k.shape[1], axis=1)
        scores = soft_cap(np.einsum("qhd,khd->hqk", q, k) * self.attention_scale, self.attention_soft_cap)
        weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
        weights /= weights.sum(axis=-1, keepdims=True)
        padded = np.pad(weights, ((0, 0), (0, 0), (POOL // 2, POOL // 2)))
        means = np.stack([padded[:, :, i : i + self.n_prompt] for i in range(POOL)]).sum(axis=0) / POOL
        self.mass = np.maximum(self.mass, means.max(axis=0))
        return super().attention(layer, x, positions)


def importance_of(draft: TinyModel, tokens: list[int]) -> Array:
    """Returns the importance of each token by its definition, in float64."""
    oracle = draft.oracle()
    whole = list(tokens)
    for _ in range(LOOKAHEAD):
        whole.append(int(oracle.logits(whole)[-1].argmax()))
    fields = {field.name: getattr(oracle, field.name) for field in dataclasses.fields(oracle)}
    watched = Watched(**fields)
    watched.n_prompt, watched.mass = len(tokens), np.zeros((LOOKAHEAD, len(tokens)))
    watched.logits(whole)
    return watched.mass.mean(axis=0)


def margin_of(importance: Array, kept: list[int]) -> float:
    """Returns how far the least mean of a chosen chunk is above the greatest of the others, without the anchors."""
    n_chunks = -(-len(importance) // CHUNK)
    means = {i: importance[i * CHUNK : (i + 1) * CHUNK].mean() for i in range(1, n_chunks - 1)}
    is_kept = {i: i * CHUNK in kept for i in means}
    return float(min(means[i] for i in means if is_kept[i]) - max(means[i] for i in means if not is_kept[i]))


@pytest.mark.few(2)
@pytest.mark.parametrize("seed", [1, 2, 3])
@pytest.mark.parametrize("options", [{}, {"threads": 1, "max_rows": 64}], ids=["whole", "chunks"])
def test_spc_41_the_choice_is_that_of_float64(tmp_path: Path, seed: int, options: dict[str, int]) -> None:
    tokens = prompt(N, 51, seed)
    importance = importance_of(DRAFT, tokens)
    kept = chosen(tokens, importance.tolist(), Fraction(KEEP, 10000))
    assert margin_of(importance, kept) > IMPORTANCE_MARGIN * importance.max()
    engine = engine_of(load(tmp_path, **options), step_tokens=64, max_running=8)
    sequence, ticket = started(engine, tokens)
    assert engine.core.positions(sequence)[: len(kept)] == kept
    assert engine.started(ticket).sparse.n_selected == len(kept) < N / 2
    # These prompts detect a wrong pooling width, and a mean over heads instead of a maximum.
    assert chosen(tokens, np.roll(importance, CHUNK).tolist(), Fraction(KEEP, 10000)) != kept


def test_spc_42_logits_are_those_of_float64_at_the_positions(tmp_path: Path) -> None:
    """The oracle evaluates the chosen tokens at their positions; one position moved fails."""
    tokens = prompt(N, 51, 1)
    engine = engine_of(load(tmp_path))
    sequence, ticket = started(engine, tokens)
    positions = engine.core.positions(sequence)
    history = engine.core.history(sequence)
    events = [e for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]
    cells = [history[at] for at in positions]
    n_kept = engine.started(ticket).sparse.n_selected
    assert positions[n_kept:] == [N, N + 1]
    oracle, bound = MODEL.oracle(), float32_bound(MODEL)
    exact = oracle.logits(cells, positions)[n_kept - 1 :]
    assert distance(np.stack([event.logits for event in events[:3]]), exact) < bound
    moved = [*positions[:40], positions[40] + 1, *positions[41:]]
    assert distance(events[0].logits, oracle.logits(cells, moved)[n_kept - 1]) > bound


def keys_of(engine: TurnedEngine, sequence: int, layer: int) -> Array:
    """Returns [cells, kv heads · head_dim]: the keys that the sequence holds."""
    blocks = [
        np.frombuffer(engine.core.k_block(layer, block), np.float32)
        .reshape(MODEL.n_kv_heads, -1, 16)  # [head][element][token]
        .transpose(2, 0, 1)
        for block in engine.core.blocks(sequence)
    ]
    keys = np.concatenate(blocks)[: engine.core.held(sequence)]
    return keys.reshape(len(keys), -1)


def test_spc_42_the_keys_of_the_first_layer_are_the_dense_ones(tmp_path: Path) -> None:
    """Bit for bit, at their positions. Those of the next positions differ, and so do those of deeper layers."""
    tokens = prompt(N, 51, 4)
    model = load(tmp_path)
    engine = engine_of(model, prefix_cache=False)
    sparse, ticket = started(engine, tokens, max_outputs=150)
    history = engine.core.history(sparse)
    dense, _ = started(engine, history, sparse_policy=None)
    n_kept = engine.started(ticket).sparse.n_selected
    assert n_kept < N / 2
    positions = engine.core.positions(sparse)[: n_kept + 1]  # and the first output
    found, whole = keys_of(engine, sparse, 0)[: n_kept + 1], keys_of(engine, dense, 0)
    np.testing.assert_array_equal(found.view(np.uint32), whole[positions].view(np.uint32))
    after = [at + 1 for at in positions]
    assert (found != whole[after]).any(axis=1).all()
    deeper, whole = keys_of(engine, sparse, 2)[: n_kept + 1], keys_of(engine, dense, 2)
    assert (deeper != whole[positions]).any()


def outputs_of(model: Any, tokens: list[int], **given: Any) -> list[tuple[int, bytes]]:
    options = given.pop("options", {})
    engine = engine_of(model, **options)
    sampling = _core.SamplingOptions(temperature=0.9, seed=6, repetition_penalty=1.2)
    ticket = engine.generate(tokens, sampling=sampling, max_outputs=20, logits=True, **given)
    engine.turn_until_idle()
    return [(e.token, e.logits.tobytes()) for e in engine.events[ticket] if isinstance(e, _core.TokenEvent)]


def test_spc_42_to_keep_all_is_dense_to_the_bit(tmp_path: Path) -> None:
    model = load(tmp_path)
    tokens = prompt(N, 51, 5)
    dense = outputs_of(model, tokens)
    assert outputs_of(model, tokens, sparse_policy="sparse", sparse_keep=10000) == dense
    assert outputs_of(model, tokens, sparse_policy="sparse", sparse_keep=KEEP) != dense


@pytest.mark.parametrize("options", [{"prefill_chunk": 7, "step_tokens": 128}, {"step_tokens": 64, "max_running": 8}])
def test_spc_46_a_sparse_run_has_the_same_bits_however_it_is_divided(tmp_path: Path, options: dict[str, int]) -> None:
    tokens = prompt(N, 51, 6)
    sparse: dict[str, Any] = {"sparse_policy": "sparse", "sparse_keep": KEEP}
    expected = outputs_of(load(tmp_path), tokens, **sparse)
    found = outputs_of(load(tmp_path, threads=1, max_rows=128), tokens, options=options, **sparse)
    assert found == expected


# A window that reaches over chunks that are left out, in every other layer.
WINDOWED = tiny("gemma2", window=100, n_layers=4, seed=3)


def counting_cells(oracle: NumpyTransformer) -> NumpyTransformer:
    """The same model, whose windows count the tokens that are there. It takes positions as [1, n]."""
    layers = [
        dataclasses.replace(layer, rope=dataclasses.replace(layer.rope, planes=(0,) * len(layer.rope.frequencies)))
        for layer in oracle.layers
    ]
    return dataclasses.replace(oracle, layers=layers)


def test_spp_6_windows_compare_the_positions_of_the_kept_tokens(tmp_path: Path) -> None:
    """Logits equal those of float64; those of a window that counts kept tokens, or of a wider one, do not."""
    run = run_in_part(engine_of(load(tmp_path, model=WINDOWED)), prompt(N, 51, 7))
    oracle, bound = WINDOWED.oracle(), float32_bound(WINDOWED)
    assert distance(run.logits, oracle.logits(run.cells, run.positions)[run.first_row :]) < bound
    of_cells = counting_cells(oracle).logits(run.cells, np.array([run.positions], np.float64))
    assert distance(run.logits, of_cells[run.first_row :]) > bound
    wider = dataclasses.replace(WINDOWED, window=250).oracle()
    assert distance(run.logits, wider.logits(run.cells, run.positions)[run.first_row :]) > bound


@pytest.mark.parametrize("options", [{"prefill_chunk": 7, "step_tokens": 128}, {"step_tokens": 64, "max_running": 8}])
def test_spp_6_windows_have_the_same_bits_however_a_run_is_divided(tmp_path: Path, options: dict[str, int]) -> None:
    tokens = prompt(N, 51, 8)
    sparse: dict[str, Any] = {"sparse_policy": "sparse", "sparse_keep": KEEP}
    expected = outputs_of(load(tmp_path, model=WINDOWED), tokens, **sparse)
    found = outputs_of(load(tmp_path, model=WINDOWED, threads=1, max_rows=128), tokens, options=options, **sparse)
    assert found == expected


@pytest.mark.parametrize("family", ["qwen35", "qwen3next"])
def test_spc_48_recurrent_layers_see_the_kept_tokens_alone(tmp_path: Path, family: str) -> None:
    """Logits are those of float64 over the kept tokens, which have their positions in the layers with attention."""
    made = tiny(family, context=512, n_layers=8)
    run = run_in_part(engine_of(load(tmp_path, model=made), n_state_slots=20), prompt(N, 51, 9))
    oracle, bound = made.oracle(), float32_bound(made)
    assert distance(run.logits, oracle.logits(run.cells, run.positions)[run.first_row :]) < bound
    assert distance(run.logits, oracle.logits(run.cells)[run.first_row :]) > bound
    assert distance(run.logits, oracle.logits(run.history[: len(run.history) - 1])[N - 1 :][:3]) > bound


@pytest.mark.parametrize("options", [{"prefill_chunk": 7, "step_tokens": 128}, {"step_tokens": 64, "max_running": 8}])
def test_spc_48_a_state_has_the_same_bits_however_a_run_is_divided(tmp_path: Path, options: dict[str, int]) -> None:
    tokens = prompt(N, 51, 10)
    made = tiny("qwen35", context=512)
    sparse: dict[str, Any] = {"sparse_policy": "sparse", "sparse_keep": KEEP}
    expected = outputs_of(load(tmp_path, model=made), tokens, options={"n_state_slots": 20}, **sparse)
    divided = load(tmp_path, model=made, threads=1, max_rows=128)
    assert outputs_of(divided, tokens, options={"n_state_slots": 20, **options}, **sparse) == expected


@pytest.mark.parametrize("options", [{}, {"threads": 1, "max_rows": 64}], ids=["whole", "chunks"])
def test_spc_41_spc_48_a_draft_model_with_a_state_scores_by_its_layers_with_attention(
    tmp_path: Path, options: dict[str, int]
) -> None:
    draft = tiny("qwen35", context=512, n_layers=4, seed=6)
    tokens = prompt(N, 51, 2)
    importance = importance_of(draft, tokens)
    kept = chosen(tokens, importance.tolist(), Fraction(KEEP, 10000))
    assert margin_of(importance, kept) > IMPORTANCE_MARGIN * importance.max()
    model = load(tmp_path, model=tiny("qwen35", context=512, n_layers=8), draft=draft, **options)
    engine = engine_of(model, n_state_slots=20, step_tokens=64, max_running=8, drafters=["model"])
    for _ in range(2):
        sequence, ticket = started(engine, tokens)
        assert engine.core.positions(sequence)[: len(kept)] == kept
        assert engine.started(ticket).sparse.n_selected == len(kept) < N / 2
    assert not engine.core.stats().drafters  # it cannot guess
