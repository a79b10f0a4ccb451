"""imp bench end to end on the built-in model: the report is complete, and its numbers are consistent."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from imp_service import _core
from imp_service.cli.shell import main
from imp_service.models import demo_model_path
from support.files.hf_contents import hf_config, hf_tensors, write_hf
from support.machine.command_line import error_lines
from support.models.forward_runs import load
from support.models.tiny_models import tiny

TINY = ["--prefill", "24", "--decode", "5", "--depth", "0,18", "--batch", "1,3", "--reps", "3"]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> dict:
    """The report of one run of the command, with one and two threads."""
    with pytest.MonkeyPatch.context() as patch, pytest.MonkeyPatch.context() as output:
        import io
        import sys

        patch.chdir(tmp_path_factory.mktemp("bench"))
        out = io.StringIO()
        output.setattr(sys, "stdout", out)
        assert main(["bench", *TINY, "--threads", "1,2", "--json"]) == 0
    return json.loads(out.getvalue())


def test_every_case_is_there(report: dict) -> None:
    assert report["schema"] == "imp.bench.v1"
    found = [(c["kind"], c["threads"], c["tokens"], c["batch"], c["depth"]) for c in report["cases"]]
    assert found == [
        case
        for threads in (1, 2)
        for case in [
            ("prefill", threads, 24, 1, 0),
            *(("decode", threads, 5, batch, depth) for depth in (0, 18) for batch in (1, 3)),
        ]
    ]
    assert [c["timed_tokens"] for c in report["cases"]] == [24, 4, 12, 4, 12] * 2
    assert [(o["threads"], o["batch"]) for o in report["overhead"]] == [(1, 1), (1, 64), (2, 1), (2, 64)]
    assert "too small to say anything about the speed" in report["remarks"][0]


def test_summaries_are_of_their_samples(report: dict) -> None:
    spreads = [value for case in report["cases"] for value in case.values() if isinstance(value, dict)]
    for overhead in report["overhead"]:
        spreads += [overhead["engine_seconds_per_step"], overhead["sampling_seconds_per_step"]]
    assert len(spreads) == 6 * 10 + 2 * 4
    for spread in spreads:
        samples = np.array(spread["samples"])
        assert samples.shape == (3,)
        assert (samples > 0).all()
        assert spread["median"] == np.median(samples)
        assert (spread["min"], spread["max"]) == (samples.min(), samples.max())


def test_rates_and_fractions_follow_from_their_parts(report: dict) -> None:
    for case in report["cases"]:
        tokens, seconds = case["timed_tokens"], np.array(case["seconds"]["samples"])
        reads = case["bytes_per_token"] * tokens / np.array(case["read_bytes_per_s"]["samples"])
        computes = case["ops_per_token"] * tokens / np.array(case["peak_ops_per_s"]["samples"])
        np.testing.assert_allclose(case["tokens_per_s"]["samples"], tokens / seconds)
        np.testing.assert_allclose(case["bandwidth_fraction"]["samples"], reads / seconds)
        np.testing.assert_allclose(case["arithmetic_fraction"]["samples"], computes / seconds)


def test_cmd_18_no_share_is_above_the_whole(monkeypatch: pytest.MonkeyPatch, capfd) -> None:
    """A limit that was measured too low is measured again; where no probe reaches a result, the result is the limit."""
    words = ["bench", "--prefill", "24", "--decode", "0", "--threads", "1", "--reps", "1", "--json"]
    measured: list[float] = []
    probe = _core.probe_read_bandwidth

    def slow_at_first(*arguments: Any, **options: Any) -> float:
        measured.append(probe(*arguments, **options) if measured else 1.0)
        return measured[-1]

    monkeypatch.setattr(_core, "probe_read_bandwidth", slow_at_first)
    monkeypatch.setattr(_core, "probe_peak", lambda *_, **__: 1.0)
    assert main(words) == 0
    (case,) = json.loads(capfd.readouterr().out)["cases"]
    assert len(measured) >= 2 and case["read_bytes_per_s"]["median"] >= max(measured)
    assert 0 < case["bandwidth_fraction"]["max"] <= 1
    assert case["arithmetic_fraction"]["median"] == 1
    assert case["peak_ops_per_s"]["median"] == pytest.approx(
        case["ops_per_token"] * case["timed_tokens"] / case["seconds"]["median"]
    )


def test_work_grows_as_the_cases_say(report: dict) -> None:
    """Compares with the built-in model's sizes: 2 n k per matrix, and the keys and values of each attended token."""
    from imp_service.config import read_settings
    from imp_service.core import load_weights

    loaded = load_weights(read_settings())
    model = loaded.model
    facts = {fact["name"]: fact["value"] for fact in model.facts}
    loaded.client.close()
    n_layers, kv_size = int(facts["n_layers"]), int(facts["n_kv_heads"]) * int(facts["head_dim"])
    weights_bytes = sum(report["weights_bytes"].values())
    ops = 2 * sum(weight["n"] * weight["k"] for weight in model.weights if weight["layout"] != "vector")
    assert report["kv_bytes_per_token"] == n_layers * kv_size * 2 * 2  # keys and values in two bytes
    for case in (c for c in report["cases"] if c["kind"] == "decode"):
        seen = np.mean([case["depth"] + output for output in range(2, 6)])
        expected_bytes = weights_bytes / case["batch"] + seen * report["kv_bytes_per_token"]
        assert case["bytes_per_token"] == pytest.approx(expected_bytes)
        attention = 4 * int(facts["n_heads"]) * int(facts["head_dim"]) * n_layers * seen
        assert case["ops_per_token"] == pytest.approx(ops + attention)
        assert case["peak"] == "int8"


def test_a_file_is_measured_by_its_path(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "a model's.gguf"
    path.symlink_to(demo_model_path())
    arguments = ["bench", "-m", str(path), "--prefill", "3", "--decode", "0", "--threads", "1", "--reps", "1"]
    assert main([*arguments, "--json"]) == 0
    report = json.loads(capfd.readouterr().out)
    assert [case["tokens"] for case in report["cases"]] == [3]
    assert report["remarks"] == []


def test_a_file_that_is_not_a_terminal_gets_plain_text(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "--prefill", "0", "--decode", "3", "--threads", "1", "--reps", "1"]) == 0
    out, err = capfd.readouterr()
    lines = out.splitlines()
    assert err == ""
    assert "\x1b" not in out
    assert lines[2].startswith("Note: The built-in model")
    heading, row = lines[3:5]
    assert heading.split()[:2] == ["case", "threads"]
    assert row.startswith("decode 3, batch 1, depth 0  ")
    assert row.endswith(" int8")
    assert [line.split(",")[1] for line in lines[5:]] == [" batch 1", " batch 64"]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--decode", "1"], "FIELD_INVALID: decode: 1, expected at least 2: the time between outputs is measured"),
        (["--synthetic", "7b"], "FIELD_INVALID: synthetic: 7b, expected one of 0.6b, 1.7b, 4b, 1b, gemma-1b"),
        (["--synthetic", "1b", "--type", "q2_k"], "FIELD_INVALID: type: q2_k, expected one of q8_0, "),
        (["--type", "q8_0"], "USAGE: --type: given without --synthetic"),
        (["--standard", "--depth", "16"], "USAGE: --depth: has no effect with --standard"),
        (
            ["--standard", "--threads", "2"],
            "CONTEXT_TOO_LONG: prefill 2048, 2 threads: 2048 tokens, the context is 512",
        ),
        (["--batch", "0"], "USAGE: argument --batch: 0: expected numbers of at least 1"),
        (["--prefill", "5e2"], "USAGE: argument --prefill: 5e2: expected whole numbers with commas between"),
        (["--reps", "1,2"], "USAGE: argument --reps: 1,2: expected one number"),
        (["--batch", "65"], "FIELD_INVALID: decode 128, batch 65, depth 0, "),
        (["--depth", "9999999"], "CONTEXT_TOO_LONG: decode 128, batch 1, depth 9999999, "),
        (["--set", "kv.bytes=1MiB", "--batch", "1,60"], "KV_FULL: decode 128, batch 60, depth 0, "),
    ],
)
def test_what_cannot_be_measured_is_refused(
    arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", *arguments]) in (64, 71)
    out, err = capfd.readouterr()
    assert out == ""
    assert error_lines(err)[-1].startswith(f"imp: error: {message}")


def test_prompts_read_in_steps_read_the_weights_in_each() -> None:
    from imp_service.core.bench.work import ModelWork

    work = ModelWork(
        body_bytes=1000,
        body_ops=7,
        head_bytes=100,
        head_ops=3,
        kv_bytes=2,
        attention_ops=5,
        windows=((0, 2), (4, 1)),
        peak="int8",
    )
    found = work.prefill(10, chunk=4)
    # Three steps, which attend to 4, 8 and 10 tokens.
    assert found.bytes == 3 * 1000 + 100 + 2 * (2 * (4 + 8 + 10) + (4 + 4 + 4))
    seen = 2 * sum(range(1, 11)) + (1 + 2 + 3 + 7 * 4)
    assert found.ops == 10 * 7 + 3 + 5 * seen


def test_the_standard_cases_are_those_that_are_judged() -> None:
    from imp_service.core.bench import STANDARD

    cases = STANDARD.cases(threads=2)
    assert [case.tokens for case in cases if case.kind == "prefill"] == [512, 2048, 8192]
    generations = [(case.batch, case.depth) for case in cases if case.kind == "decode"]
    assert generations == [(1, 0), (1, 4096), (1, 32768), (4, 0), (8, 0), (16, 0), (32, 0)]


def test_products_of_bfloat16_are_held_to_its_own_peak() -> None:
    from imp_service import _core
    from imp_service.core.bench.work import model_work
    from imp_service.core.synthetic import MIXES, Shape, metadata, tensors

    shape = Shape("Small", "llama", 1, 64, 96, 4, 2, 16, 320, 512, 1e4, 1e-5, False)
    for mix, peak in (("bf16", "bf16"), ("f16", "f32"), ("f32", "f32"), ("q8_0", "int8")):
        file = _core.make_synthetic_file(metadata(shape, mix), list(tensors(shape, MIXES[mix])))
        assert model_work(_core.Model.load(file, kv_bytes=2**20)).peak == peak


@pytest.mark.parametrize("changes", [{}, {"tied": True}, {"n_experts": 4}], ids=["plain", "tied", "experts"])
def test_cmd_1_a_checkpoint_of_safetensors_costs_what_the_same_model_costs_as_gguf(changes, tmp_path: Path) -> None:
    """The tensors of a checkpoint have other names."""
    from imp_service.core.bench.work import model_work

    model = tiny("llama", **changes)
    path = write_hf(tmp_path / "model.safetensors", hf_config(model), hf_tensors(model))
    works = [model_work(load(source, tmp_path)) for source in (model, path)]
    assert works[0] == works[1]
    assert works[0].head_ops == 2 * model.vocab_size * model.hidden_size
    assert (works[0].expert_bytes > 0) == (model.n_experts > 0)


def test_of_the_experts_a_step_reads_those_that_rows_go_to() -> None:
    from imp_service.core.bench.work import ModelWork

    work = ModelWork(
        body_bytes=1000,
        body_ops=7,
        head_bytes=100,
        head_ops=3,
        kv_bytes=0,
        attention_ops=0,
        windows=(),
        peak="int8",
        expert_bytes=6400,
        expert_share=0.25,
    )
    assert work.decode(batch=1, depth=0, tokens=3).bytes == 2 * (1000 + 100 + 1600)
    # Two rows share one expert of four with probability 1/4.
    assert work.decode(batch=2, depth=0, tokens=2).bytes == 1000 + 100 + 6400 * 7 / 16
    assert work.prefill(3, chunk=2).bytes == 2 * 1000 + 100 + 6400 * 7 / 16 + 1600
