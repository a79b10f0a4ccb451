"""Models of random weights have the types in their names; imp is compared with llama.cpp on one of them."""

import dataclasses
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import gguf
import numpy as np
import pytest

from compare.ceiling import LeastWork
from compare.family_shapes import FAMILIES, VOCABULARY, family
from compare.outcome import Outcome, Round, Run, Sample
from compare.peers.engines.llama_bench_engine import LlamaBenchEngine
from compare.peers.engines.protocol import Task
from compare.peers.goals import PEAK_MEMORY, scaling, verdicts
from compare.refused import RefusedError
from compare.rounds import Rules, compare
from imp_service.core.bench.cases import Case
from imp_service.core.bench.work import Work
from imp_service.core.synthetic import DEVIATION
from make_model import MODELS, make_model, vocabulary
from support.deploy.offered_commands import TOOLS, compared, rectangles
from support.machine.command_line import FOUND_IN

pytest.importorskip("llama_cpp", reason="llama_cpp is not installed", exc_type=ImportError)

from support.oracles.llama_cpp_peer import AMX_NOTE, has_amx

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(FOUND_IN)}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model that the command writes."""
    path = tmp_path_factory.mktemp("models") / "tiny.gguf"
    command = [sys.executable, str(TOOLS / "make_model.py"), "tiny", "q4_k_m", "-o", str(path)]
    subprocess.run(command, env=ENVIRONMENT, capture_output=True, check=True)
    return path


@pytest.mark.long
def test_a_model_has_its_types_and_its_weights_their_sizes(model: Path, tmp_path: Path) -> None:
    mixed = {tensor.name: tensor.tensor_type.name for tensor in gguf.GGUFReader(model).tensors}
    assert mixed["token_embd.weight"] == "Q6_K"
    assert mixed["blk.0.ffn_up.weight"] == "Q4_K"
    plain = gguf.GGUFReader(make_model(MODELS["tiny"], "f16", tmp_path / "plain.gguf"))
    values = {tensor.name: np.array(tensor.data, np.float64) for tensor in plain.tensors}
    assert values.keys() == mixed.keys()
    for name, divisor in (("blk.1.ffn_up.weight", 1.0), ("blk.1.ffn_down.weight", 2.0)):  # two layers write twice each
        deviation = values[name].std() / (DEVIATION / divisor)
        # The standard deviation of n samples has an error of 1 / √2n; the bound is five times that.
        assert abs(deviation - 1) < 5 / np.sqrt(2 * values[name].size)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", MODELS)
def test_vocabularies_have_the_real_sizes_and_no_word_twice(name: str) -> None:
    shape = MODELS[name]
    found = vocabulary(shape)
    tokens = found["tokenizer.ggml.tokens"]
    assert len(tokens) == len(set(tokens)) == len(found["tokenizer.ggml.token_type"]) == shape.vocab_size


def test_llama_cpp_splits_words_by_the_vocabulary(model: Path) -> None:
    import llama_cpp

    with_words = llama_cpp.Llama(str(model), vocab_only=True, verbose=False)
    tokens = with_words.tokenize(b"abcd", add_bos=False)
    assert with_words.detokenize(tokens) == b"abcd"
    assert len(tokens) < len(b"abcd")


@pytest.mark.long
def test_imp_and_llama_cpp_are_compared_case_by_case(model: Path, tmp_path: Path) -> None:
    svg, words = tmp_path / "report.svg", ("--quick", "--threads", "1", "--reps", "1", "--engines", "llama.cpp")
    _, report = compared("peers", model, *words, "--svg", svg, report=tmp_path / "report.json")
    assert report["complete"]
    assert report["left_out"] == {}
    assert report["notes"] == ({"llama.cpp": AMX_NOTE} if has_amx() else {})
    start, *measured = report["cases"]
    assert (start["kind"], start["threads"], list(start["engines"])) == ("start", 1, ["imp", "llama.cpp"])
    cases = [(case["kind"], case["tokens"], case["batch"], case["depth"]) for case in measured]
    assert cases == [("prefill", 64, 1, 0), ("decode", 8, 1, 0), ("decode", 8, 1, 48), ("decode", 8, 4, 0)]
    for case in measured:
        ours, theirs = (case["engines"][name] for name in ("imp", "llama.cpp"))
        tokens = case["tokens"] if case["kind"] == "prefill" else case["batch"] * (case["tokens"] - 1)
        np.testing.assert_allclose(
            ours["tokens_per_s"]["samples"], [tokens / sample["seconds"] for sample in ours["samples"]]
        )
        seconds = [[sample["seconds"] for sample in engine["samples"]] for engine in (theirs, ours)]
        np.testing.assert_allclose(theirs["imp_ratio"]["tokens_per_s"]["samples"], np.divide(*seconds))
        assert case["refusals"] == {}
    planned, file, peak = (
        start["engines"]["imp"][name]["median"] for name in ("planned_bytes", "file_bytes", "peak_bytes")
    )
    assert planned > file
    assert [(goal["found"], goal["met"]) for goal in start["goals"]] == [
        (peak / planned, peak / planned <= PEAK_MEMORY)
    ]
    assert rectangles(svg) == 1 + 2 * len(report["cases"])


@pytest.mark.long
def test_imp_is_compared_with_itself_under_other_settings(model: Path, tmp_path: Path) -> None:
    sizes = ["--engines", "imp", "--prefill", "16", "--depths", "0", "--batches", "1", "--decode", "2", "--reps", "1"]
    variants = ["--also", "kv.dtype=q8_0", "--also", "device.isa=generic kv.dtype=q9"]
    words = ["--quick", "--threads", "1", *sizes, *variants, "--svg", tmp_path / "report.svg"]
    _, report = compared("peers", model, *words, report=tmp_path / "report.json")
    assert list(report["left_out"]) == ["imp device.isa=generic kv.dtype=q9"]
    assert "kv.dtype" in report["left_out"]["imp device.isa=generic kv.dtype=q9"]
    for case in report["cases"]:
        assert list(case["engines"]) == ["imp", "imp kv.dtype=q8_0"]
        assert case["best_peer"] is None


@pytest.mark.long
def test_what_was_measured_before_a_failure_is_written(model: Path, tmp_path: Path) -> None:
    svg = tmp_path / "report.svg"
    sizes = ["--engines", "imp", "--prefill", "16", "--depths", "0", "--batches", "1", "--decode", "2", "--reps", "1"]
    words = ["--quick", "--threads", "1,1000000", *sizes, "--svg", svg]
    ran, report = compared("peers", model, *words, report=tmp_path / "report.json")
    assert ran.returncode == 1
    assert ran.stderr.startswith("imp: ")
    assert "device.threads" in ran.stderr
    assert not report["complete"]
    assert [(case["kind"], case["threads"]) for case in report["cases"]] == [
        ("start", 1), ("prefill", 1), ("decode", 1),
    ]  # fmt: skip
    assert rectangles(svg) == 1 + len(report["cases"])


class FakeEngine:
    """An engine that records what it is asked, and refuses all cases if `refused` says why."""

    def __init__(self, name: str, refused: str = "", others: Sequence[float] = (0.0, 0.0)) -> None:
        self.name, self.refused, self.others = name, refused, list(others)
        self.asked: list[str] = []

    def prepare(self, _: Case) -> None:
        self.asked.append("prepare")
        if self.refused:
            raise RefusedError(self.refused)

    def run(self, _: Case) -> Run:
        self.asked.append("run")
        return Run(1.0, self.others.pop(0))

    def release(self) -> None:
        self.asked.append("release")


def outcome_with(*engines: FakeEngine) -> Outcome:
    """Compares engines in two quiet rounds."""
    work = LeastWork(1, "int8", [Work(1, 1, 1)], lambda: {"bytes": 1.0, "int8": 1.0})
    return compare(Case("prefill", 1, 16), engines, work, Rules(2, others=0.1), lambda _: None)


def test_an_engine_that_refuses_a_case_is_released() -> None:
    imp, large = FakeEngine("imp"), FakeEngine("large", "too large")
    assert outcome_with(imp, large).refusals == {"large": "too large"}
    assert imp.asked == ["prepare", "run", "run", "release"]
    assert large.asked == ["prepare", "release"]
    with pytest.raises(RefusedError, match="prefill 16, 1 thread: too large"):
        outcome_with(FakeEngine("imp", "too large"))


def test_disturbed_rounds_are_repeated_and_left_out() -> None:
    """The clock's error counts as quiet. The engine that goes first alternates."""
    outcome = outcome_with(FakeEngine("imp", others=[0.0, 0.2, 0.0]), FakeEngine("peer", others=[0.12, 0.0, 0.0]))
    assert [list(each.samples) for each in outcome.rounds] == [["imp", "peer"], ["imp", "peer"]]
    assert (outcome.n_disturbed, outcome.is_disturbed) == (1, False)
    busy = outcome_with(FakeEngine("imp", others=[0.9, 0.5, 0.8, 0.4, 0.7, 0.6]))
    assert [each.others for each in busy.rounds] == [0.4, 0.5]
    assert (busy.n_disturbed, busy.is_disturbed) == (6, True)


def outcome_of(case: Case, seconds: dict[str, float], peak: str = "int8") -> Outcome:
    """Returns the outcome of one round whose work takes 1 s at the ceiling."""
    samples = {name: Sample(Run(taken), {"bytes": 1e9, peak: 1e12}) for name, taken in seconds.items()}
    return Outcome(case, LeastWork(100.0, peak, [Work(100, 1e9, 1e11)], dict), [Round(samples)])


def test_goals_are_those_of_the_case_and_hold_for_the_best_peer() -> None:
    seconds = {"imp": 1.25, "openvino": 2.0, "llama.cpp": 4.0}
    found = verdicts(outcome_of(Case("prefill", 2, 512), seconds))
    assert [(verdict.of, verdict.found, verdict.asked, verdict.is_met) for verdict in found] == [
        ("openvino, the best peer", 1.6, 1.4, True),
        ("llama.cpp", 3.2, 3.5, False),
        ("the ceiling", 0.8, 0.62, True),
    ]
    alone = verdicts(outcome_of(Case("decode", 1, 32), seconds))
    assert [(verdict.of, verdict.asked, verdict.is_met) for verdict in alone] == [("the ceiling", 0.8, True)]
    both = verdicts(outcome_of(Case("decode", 2, 32), seconds))
    assert [(verdict.asked, verdict.is_met) for verdict in both] == [(1.15, True), (1.35, True), (0.9, False)]
    deep = verdicts(outcome_of(Case("decode", 2, 32, 1, 4096), {"imp": 1.0}, "bf16"))
    assert [verdict.of for verdict in deep] == ["the ceiling"]
    threads = [outcome_of(Case("prefill", n, 512), {"imp": taken}) for n, taken in ((1, 1.0), (2, 0.625), (4, 0.25))]
    assert [(verdict.found, verdict.is_met) for verdict in scaling(threads)] == [(0.8, False), (1.0, True)]
    assert scaling([*threads[1:], outcome_of(Case("decode", 1, 512), {"imp": 1.0})]) == []
    assert verdicts(outcome_of(Case("prefill", 2, 64), seconds)) == []
    assert verdicts(outcome_of(Case("decode", 2, 32, 16), seconds, "f32")) == []


@pytest.mark.few(4)
@pytest.mark.parametrize("name", FAMILIES)
def test_models_of_families_have_the_size_of_a_small_real_model(name: str) -> None:
    torch = pytest.importorskip("torch", reason="torch is not installed")
    pytest.importorskip("transformers", reason="transformers is not installed")
    with torch.device("meta"):
        peer = family(name).unfilled()
    assert 0.3e9 < sum(parameter.numel() for parameter in peer.parameters()) < 1.2e9
    assert {parameter.shape[0] for parameter in peer.get_input_embeddings().parameters()} == {VOCABULARY}


LLAMA_BENCH = """#!{python}
import json, sys
words = dict(zip(sys.argv[1::2], sys.argv[2::2]))
if words["-m"] != "{model}":
    sys.exit("cannot load")
# A millisecond for each token of a prompt, 10 for each that is generated.
n = int(words["-p"]) + 10 * int(words["-n"])
assert (words["-r"], words["-o"], words["-t"]) == ("1", "json", "2")
print(json.dumps([{{"n_prompt": int(words["-p"]), "samples_ns": [n * 1000000]}}]))
"""


def test_a_fork_of_llama_cpp_is_measured_by_its_llama_bench(tmp_path: Path) -> None:
    """A stand-in with the options and the report of llama-bench."""
    binary = tmp_path / "llama-bench"
    binary.write_text(LLAMA_BENCH.format(python=sys.executable, model=tmp_path / "m.gguf"))
    binary.chmod(0o755)
    task = Task(tmp_path / "m.gguf", 2, 1024, 1000, str(binary))
    engine = LlamaBenchEngine(task)
    engine.prepare(Case("prefill", 2, 512))
    assert engine.run() == pytest.approx(0.512)
    engine.prepare(Case("decode", 2, 17))
    assert engine.run() == pytest.approx(0.16)
    assert engine.peak_bytes() > 1 << 20
    for case in (Case("decode", 2, 17, batch=4), Case("decode", 2, 17, depth=48)):
        with pytest.raises(RefusedError, match="one sequence from nothing"):
            engine.prepare(case)
    other = LlamaBenchEngine(dataclasses.replace(task, path=tmp_path / "other.gguf"))
    other.prepare(Case("prefill", 2, 1))
    with pytest.raises(RefusedError, match="llama-bench ended with 1: cannot load"):
        other.run()
    for path in (None, str(tmp_path / "missing")):
        with pytest.raises(RefusedError, match="--llama-bench"):
            LlamaBenchEngine(dataclasses.replace(task, llama_bench=path))
