"""Divergences follow their definition, and engines are close to the weights in the file, not to others."""

import math
from pathlib import Path

import numpy as np
import pytest

from compare.quality.divergence import Divergences, Scale, divergences
from compare.quality.imp_rows import ImpRows
from compare.quality.reference_rows import ReferenceRows
from imp_service.models import demo_model_path
from make_model import convert_demo
from support.deploy.offered_commands import compared
from support.oracles import tolerances

pytest.importorskip("llama_cpp", reason="llama_cpp is not installed", exc_type=ImportError)

from support.oracles.llama_cpp_peer import AMX_NOTE, has_amx

TEXT = Path(__file__).parents[1] / "data" / "held_out.txt"


def rows_of(*distributions: list[float]) -> np.ndarray:
    """Returns logits, each row shifted by another constant."""
    return np.log(np.array(distributions, np.float32)) + np.arange(len(distributions), dtype=np.float32)[:, None]


def test_divergences_are_those_of_the_definition() -> None:
    true, found = rows_of([0.5, 0.25, 0.25], [0.1, 0.2, 0.7]), rows_of([0.25, 0.5, 0.25], [0.1, 0.2, 0.7])
    got = divergences([true], iter([found]), Scale(1.0, 0.0))
    rounding = tolerances.divergence(np.concatenate([true, found]))
    np.testing.assert_allclose(got.nats, [0.25 * math.log(2), 0], atol=rounding)
    assert got.agrees.tolist() == [False, True]
    assert got.figures["mean"].value == pytest.approx(0.125 * math.log(2), abs=rounding)
    double = tolerances.divergence(2 * true)
    squared = divergences([true], iter([found]), Scale(2.0, 0.0)).nats[0]
    p, q = (np.array(parts) / sum(parts) for parts in ([4, 1, 1], [1, 4, 1]))
    assert squared == pytest.approx(float((p * np.log(p / q)).sum()), abs=double)


def test_a_scale_gives_the_entropy_that_is_asked_for() -> None:
    rows = np.random.default_rng(0).standard_normal((64, 500)).astype(np.float32)
    scale = Scale.of([rows], 2.5)
    p = np.exp(scale.factor * rows[::8].astype(np.float64))
    p /= p.sum(axis=-1, keepdims=True)
    assert scale.entropy == pytest.approx(-(p * np.log(p)).sum(axis=-1).mean())
    assert f"{scale.entropy:.3f}" == "2.500"


def test_spreads_of_a_ratio_are_of_the_same_positions() -> None:
    """If one divergence is twice another at every position, its mean is twice the other's in every draw."""
    nats = np.random.default_rng(0).gamma(0.1, size=200)
    agrees = np.ones(200, np.bool_)
    ratio = Divergences(2 * nats, agrees).ratio(Divergences(nats, agrees))
    np.testing.assert_allclose([ratio.low, ratio.value, ratio.high], 2.0)
    mean = Divergences(nats, agrees).figures["mean"]
    assert mean.low < nats.mean() < mean.high


@pytest.mark.long
def test_engines_are_compared_with_the_weights_of_the_file(tmp_path: Path) -> None:
    path = convert_demo("q4_0", tmp_path / "demo.gguf")
    sizes = ["--text", str(TEXT), "--sequences", "2", "--tokens", "24", "--threads", "1", "--kv", "bf16"]
    _, written = compared("quality", path, *sizes, report=tmp_path / "report.json")
    assert written["complete"]
    assert written["notes"] == ({"llama.cpp": AMX_NOTE} if has_amx() else {})
    (found,) = written["files"]
    engines = {(engine["engine"], engine["kv"]): engine["mean"]["value"] for engine in found["engines"]}
    ways = ("llama.cpp, prompts", "llama.cpp, steps")
    assert engines.keys() == {("imp", "bf16"), *((way, kv) for way in ways for kv in ("f16", "bf16"))}
    least = min(engines[way, "f16"] for way in ways)
    assert found["imp_ratio"]["bf16"]["value"] == pytest.approx(engines["imp", "bf16"] / least)
    # The comparison excludes the cost of quantizing the weights: the original weights are much farther away.
    tokens = [list(range(300 + i, 324 + i)) for i in range(2)]
    rows = list(ImpRows("bf16")(path, 1, tokens))
    own, other = (list(ReferenceRows(of)(tokens)) for of in (path, demo_model_path()))
    none = Scale(1.0, 0.0)
    assert 20 * divergences(own, rows, none).nats.mean() < divergences(other, rows, none).nats.mean()
