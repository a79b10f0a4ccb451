"""The GPU check runs to its end on the emulated device, and judges numbers correctly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gpu_check import main, numbers, report
from gpu_check.context import Context, StageError
from gpu_check.ledger import CLEAN, NOT_RUN, Entry
from gpu_check.main import STAGES, Outcome, Stage
from gpu_check.op_cases import OPS
from gpu_check.rows import runnable_kernels
from gpu_check.stages import engine as engine_stage
from gpu_check.stages import ledger as ledger_stage
from gpu_check.stages import numerics, probe, sanitizer
from gpu_check.stages.kernels import attention_work, speed
from support.kernels.devices import GPU_KINDS

DOOR = Path(__file__).resolve().parents[2] / "tools" / "gpu_check.py"
LARGEST = 16 << 20


@pytest.mark.alone
@pytest.mark.long
def test_every_stage_passes_in_small(tmp_path: Path) -> None:
    """Runs everything that a run on hardware does except the build, so that no bug wastes such a run."""
    done = subprocess.run(
        [sys.executable, str(DOOR), "--dry", "--out", str(tmp_path)], capture_output=True, text=True, check=False
    )
    log = (tmp_path / "log.txt").read_text()
    assert done.returncode == 0, done.stdout + log[-8000:]
    results = json.loads((tmp_path / "results.json").read_text())
    assert {stage["stage"]: stage["status"] for stage in results["stages"]} == {s.name: "passed" for s in STAGES}
    assert {row["stage"] for row in results["findings"]} == {stage.name for stage in STAGES}
    files = list(tmp_path.iterdir())
    assert len(files) <= 8
    assert max(file.stat().st_size for file in files) < LARGEST
    summary = done.stdout.rstrip().splitlines()
    assert summary[-1] == "PASSED"
    assert len(summary) - summary.index("") - 1 <= report.MOST_LINES
    entries = json.loads((tmp_path / "ledger.json").read_text())["kernels"]
    # A dry run executes only one test file, so kernels of the other files have no entry.
    assert entries.keys() == {name for name, op in OPS.items() if op.tests == ("backend/test_ops.py",)}
    assert {row["kernel"] for row in results["findings"] if row["what"] == "op"} == OPS.keys()
    modes = {row["case"] for row in results["findings"] if row["what"] == "deterministic"}
    assert modes == {"batch 1 at 0", "batch 2 at 4", "prompt of 6"}
    assert {name for name, entry in entries.items() if Entry(**entry).is_of_hardware} == set()


def context_of(folder: Path, *rows: dict[str, Any]) -> Context:
    context = Context(folder, is_dry=True)
    context.measurements.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return context


# Stages.


def stage_named(name: str, **changes: Any) -> Stage:
    return Stage(name, **{"seconds": 30, "dry_seconds": 30, **changes})


def test_a_stage_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    door = tmp_path / "door.py"
    door.write_text("import threading\nprint('begun', flush=True)\nthreading.Event().wait()\n")
    monkeypatch.setattr(main, "DOOR", door)
    (outcome,) = main.run_stages(context_of(tmp_path), [stage_named("probe", dry_seconds=1)])
    assert outcome.status == "timed out"
    assert outcome.is_fatal
    assert "begun" in (tmp_path / "log.txt").read_text()


def test_a_stage_that_fails_says_why_and_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    door = tmp_path / "door.py"
    door.write_text("import sys\nprint('probe: no such device')\nsys.exit('probe' in sys.argv)\n")
    monkeypatch.setattr(main, "DOOR", door)
    first, second = main.run_stages(context_of(tmp_path), [stage_named("probe"), stage_named("kernels")])
    assert (first.status, first.message) == ("failed", "probe: no such device")
    assert second.status == "passed"


def test_without_a_build_nothing_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    door = tmp_path / "door.py"
    door.write_text("raise SystemExit(1)\n")
    monkeypatch.setattr(main, "DOOR", door)
    outcomes = main.run_stages(context_of(tmp_path), [stage_named("build"), stage_named("kernels")])
    assert [outcome.status for outcome in outcomes] == ["failed", "not reached"]


def test_a_stage_has_no_more_time_than_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "DRY_SECONDS", 0)
    (outcome,) = main.run_stages(context_of(tmp_path), [stage_named("probe")])
    assert (outcome.status, outcome.message) == ("not reached", "no time was left")


def test_a_run_takes_less_than_nine_minutes() -> None:
    assert main.SECONDS < 9 * 60
    kept = {stage.name for stage in STAGES if stage.is_required} - {"probe"} | {"sanitizer"}
    assert {stage.name for stage in STAGES if stage.least} == kept
    # Even if the first stages use their whole limit, each other stage has its minimum time.
    first = [stage.seconds for stage in STAGES[:3]]
    assert sum(first) + sum(stage.least for stage in STAGES[3:]) <= main.SECONDS


def test_what_comes_later_keeps_its_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    limits: dict[str, float] = {}

    def run_stage(context: Context, stage: Stage, limit: float) -> Outcome:
        limits[stage.name] = limit
        return Outcome(stage.name, "passed", 0.0, stage.is_required)

    monkeypatch.setattr(main, "run_stage", run_stage)
    monkeypatch.setattr(main, "SECONDS", 100)
    stages = [stage_named("numerics", seconds=90), stage_named("engine", least=30), stage_named("ledger", least=10)]
    main.run_stages(Context(tmp_path), stages)
    assert 59 < limits["numerics"] <= 60
    assert limits["engine"] == limits["ledger"] == 30
    main.run_stages(Context(tmp_path), stages, factor=3)
    assert 89 < limits["ledger"] <= 90


def test_stages_by_name_keep_what_others_found(tmp_path: Path) -> None:
    context = context_of(tmp_path, *({"stage": stage, "what": "note", "text": "a"} for stage in ("probe", "numerics")))
    (tmp_path / "ledger.json").write_text("{}")
    main.prepare(context, [stage_named("numerics")])
    assert list(context.rows()) == [{"stage": "probe", "what": "note", "text": "a", "earlier": True}]
    assert (tmp_path / "ledger.json").exists()
    main.prepare(context, [stage_named("build")])  # the next log is another program's
    assert list(context.rows()) == []


def test_only_what_there_is_is_taken(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.arguments_of(["--stages", "probe,kernels", "--only", "rope,q8_0_dp4a"]).only == ("rope", "q8_0_dp4a")
    (tmp_path / "file").touch()
    for words, said in (
        (["--stages", "probe,nothing"], "nothing, expected some of probe"),
        (["--only", "rope,q9_dp4a"], "--only: q9_dp4a, expected some of activation_rows"),
        (["--wheels", str(tmp_path / "nowhere")], "nowhere is no folder"),
        (["--gather", str(tmp_path / "file"), "3.12"], "file is a file, expected a folder"),
    ):
        with pytest.raises(SystemExit):
            main.arguments_of(words)
        assert said in capsys.readouterr().err


# Numbers.


def test_quantiles_lie_between() -> None:
    assert numbers.quantile([3.0, 1.0, 2.0], 0.5) == 2.0
    assert numbers.quantile([0.0, 10.0], 0.1) == 1.0
    assert numbers.quantile([7.0], 0.9) == 7.0
    with pytest.raises(ValueError, match="no values"):
        numbers.quantile([], 0.5)


def test_a_speed_stands_beside_the_limit_that_is_nearer(tmp_path: Path) -> None:
    ceilings = [{"stage": "ceilings", "what": "ceiling", "name": name, "rate": rate}
                for name, rate in (("read", 4e12), ("bf16", 8e14))]  # fmt: skip
    context = context_of(tmp_path, *ceilings)
    decode = speed(context, [1e-3] * 3, (1, 1000, 1000), 2_000_000_000)
    assert (decode["unit"], decode["rate"], decode["fraction"]) == ("GB/s", 2e12, 0.5)
    prefill = speed(context, [1e-3] * 3, (2048, 1000, 1000), 2_000_000_000)
    assert (prefill["unit"], prefill["rate"]) == ("TFLOP/s", 2 * 2048 * 1e6 / 1e-3)
    assert speed(context_of(tmp_path), [1.0], (1, 8, 8), 64)["fraction"] is None


def test_attention_counts_what_the_mask_leaves() -> None:
    work = attention_work((2, 3, 5), (4, 2, 8))
    assert work == {"bytes": 4.0 * 2 * 5 * 2 * 8, "ops": 4.0 * 2 * (3 + 4 + 5) * 4 * 8}


# The results of tests and tools.

JUNIT = """<testsuites><testsuite tests="{tests}" failures="{failures}" errors="{errors}" time="2.5">
<testcase name="a">{skip}</testcase></testsuite></testsuites>"""


@pytest.mark.parametrize(
    ("counts", "skip", "word"),
    [
        ((3, 0, 0), "", ""),
        ((3, 1, 1), "", "2 of 3 failed"),
        ((0, 0, 0), "", "no test ran"),
        ((3, 0, 0), '<skipped message="no CUDA device: 35"/>', "1 of 2 skipped"),
        ((3, 0, 0), '<skipped message="this CPU lacks avx512"/>', ""),
        ((3, 0, 0), '<skipped message="/usr/local/cuda/lib/libcublasLt.so.13: cannot open"/>', ""),
        ((3, 0, 0), '<skipped message="device cuda: /opt/x says no"/>', "1 of 2 skipped"),
        ((1, 0, 0), '<skipped message="this CPU lacks avx512"/>', "no test ran"),
        ((1, 0, 0), '<skipped message="torch is not installed"/>', ""),
    ],
)
def test_a_skip_for_the_gpu_and_no_test_at_all_are_failures(counts: tuple[int, ...], skip: str, word: str) -> None:
    tests, failures, errors = counts
    text = JUNIT.format(tests=tests, failures=failures, errors=errors, skip=skip)
    assert numerics.counts_of(text).word == word


def test_who_asks_for_free_memory_has_the_gpu_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    running: set[str] = set()
    company: dict[str, set[str]] = {}

    def run_tests(context: Context, path: Path, folder: Path, end: float) -> tuple[Path, numerics.Counts, str]:
        running.add(path.name)
        company[path.name] = set(running)
        running.remove(path.name)
        return path, numerics.Counts(1, 0, 0), ""

    monkeypatch.setattr(numerics, "run_tests", run_tests)
    assert numerics.check_tests(Context(tmp_path, stage="numerics"), float("inf")) == []
    assert next(iter(company)) == "test_long_runs.py"
    assert company["test_long_runs.py"] == {"test_long_runs.py"}
    assert {"test_ops.py", "test_step_graphs.py", "test_prepared_steps.py", "test_loading.py"} <= company.keys()


def test_files_of_tests_that_run_on_gpus_are_found(tmp_path: Path) -> None:
    names = {path.name for path in numerics.files_of_tests(Context(tmp_path))}
    assert {"test_ops.py", "test_gpu_decoder.py"} <= names
    # These would fail if a real GPU is required, because they use the emulated one.
    assert not {"test_arena.py", "test_gpu_check.py", "test_gpu_claims.py"} & names


# An answer of nvidia-smi.
SMI = "NVIDIA H200, 580.65.06, 9.0, 143771, 345, 3201, 1980, 700.00, 29, 0"


def test_what_nvidia_smi_says_is_taken_apart() -> None:
    facts = probe.facts_of(SMI)
    assert (facts["name"], facts["driver"]) == ("NVIDIA H200", "580.65.06")
    assert (facts["compute_cap"], facts["clocks_max_sm"], facts["utilization_gpu"]) == ("9.0", "1980", "0")
    assert probe.NVIDIA_SMI[1].startswith("--query-gpu=name,driver_version,compute_cap,")
    for nothing in ("no nvidia-smi", "Failed to initialize NVML: Driver/library version mismatch", ""):
        with pytest.raises(StageError, match="does not name a device"):
            probe.facts_of(nothing)


def test_without_nvidia_smi_pytorch_names_the_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    properties = SimpleNamespace(name="NVIDIA H200", major=9, minor=0, total_memory=150_000 << 20)
    cuda = SimpleNamespace(is_available=lambda: True, get_device_properties=lambda device: properties)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(probe, "first_line", lambda *command, of=0: f"no {command[0]}")
    context = Context(tmp_path, stage="probe")
    probe.run(context, 5.0)
    [device] = context.found("probe", "device")
    assert (device["name"], device["driver"], device["compute_cap"]) == ("NVIDIA H200", "unknown", "9.0")
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=SimpleNamespace(is_available=lambda: False)))
    with pytest.raises(StageError, match="does not name a device: no nvidia-smi"):
        probe.run(context, 5.0)


def test_the_help_says_what_runs_when(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main.arguments_of(["--help"])
    text = capsys.readouterr().out
    lines = [line.split() for line in text.splitlines()]
    at = [next(i for i, words in enumerate(lines) if words[:2] == [stage.name, str(stage.seconds)]) for stage in STAGES]
    assert at == sorted(at)
    assert f"at most {main.SECONDS} s in all" in text


@pytest.mark.parametrize(
    ("status", "output", "verdict"),
    [
        (0, "ran a\n========= ERROR SUMMARY: 0 errors\n", "clean"),
        (9, "ran a\n========= ERROR SUMMARY: 12 errors\n", "12 found"),
        (9, "ran a\n========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)\n", "2 found"),
        (1, "========= Error: Device not supported\n", "not run: refused here"),
        (None, "ran a\n", "not run: not done in time"),
        (1, "ran a\n", "not run: no summary, status 1"),
        (3, "ran a\n========= ERROR SUMMARY: 0 errors\n", "status 3"),
    ],
)
def test_verdicts_of_the_sanitizer(status: int | None, output: str, verdict: str) -> None:
    assert sanitizer.verdict_of(status, output) == verdict


FOUND = [
    {"stage": "build", "what": "built", "way": "pip", "python_path": ""},
    {"stage": "probe", "what": "device", "name": "H200", "driver": "580", "compute_cap": "9.0"},
    {"stage": "numerics", "what": "row", "kernel": "q8_0_hmma", "passed": True, "worst": {"decode": 0.25}},
    {"stage": "numerics", "what": "row", "kernel": "q4_0_hmma", "passed": False, "worst": {"decode": 2.0}},
    {"stage": "numerics", "what": "op", "kernel": "rope", "passed": True, "worst": {"angles": 0.5}},
    {"stage": "numerics", "what": "tests", "family": "backend/test_ops.py", "passed": True},
    {"stage": "numerics", "what": "tests", "family": "backend/cuda/test_many_row_kernels.py", "passed": True},
    {"stage": "kernels", "what": "kernel", "kernel": "q8_0_hmma", "shape": "8b q", "m": 1, "rate": 3e12, "unit": "GB/s",
     "fraction": 0.75},
    *({"stage": "sanitizer", "what": "verdict", "tool": tool, "verdict": CLEAN, "asked": ["rope"], "ran": ["rope"]}
      for tool in sanitizer.PROVING),
    *({"stage": "sanitizer", "what": "verdict", "tool": tool, "verdict": CLEAN, "asked": ["q8_0_hmma"],
      "ran": ["q8_0_hmma"]}
      for tool in sanitizer.PROVING[1:]),
    {"stage": "sanitizer", "what": "verdict", "tool": "initcheck", "verdict": "3 found", "asked": ["q8_0_hmma", "rope"],
     "ran": ["q8_0_hmma", "rope"]},
]  # fmt: skip


@pytest.fixture
def _plain_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_stage.sources, "hash_of", lambda kernel, nvcc: f"{kernel} {nvcc}")


def test_the_sanitizers_word_is_of_all_tools_and_of_what_they_went_through(tmp_path: Path) -> None:
    def verdict(**changes: Any) -> str:
        rows = [{"stage": "sanitizer", "what": "verdict", "tool": tool, "verdict": CLEAN, "asked": ["q8_0_hmma"],
      "ran": ["q8_0_hmma"]}
                for tool in sanitizer.TOOLS]  # fmt: skip
        for tool, change in changes.items():
            rows[sanitizer.TOOLS.index(tool)] |= change
        return ledger_stage.verdict(context_of(tmp_path, *rows), "q8_0_hmma")

    assert verdict() == CLEAN
    assert verdict(initcheck={"verdict": "5 found"}) == CLEAN
    assert verdict(racecheck={"verdict": "5 found"}) == "racecheck: 5 found"
    assert (
        verdict(racecheck={"verdict": "5 found, not done in time", "ran": []}) == "racecheck: 5 found, not done in time"
    )
    assert verdict(memcheck={"verdict": "not run: refused here", "ran": []}) == NOT_RUN
    assert verdict(synccheck={"ran": []}) == NOT_RUN


@pytest.mark.usefixtures("_plain_hashes")
def test_an_entry_has_what_was_found_of_its_kernel(tmp_path: Path) -> None:
    found = ledger_stage.entries(context_of(tmp_path, *FOUND), "13.0.88")
    assert found.keys() == {"q8_0_hmma", "rope"}
    entry = found["q8_0_hmma"]
    assert (entry.hash, entry.device, entry.worst_error) == ("q8_0_hmma 13.0.88", "H200", {"decode": 0.25})
    assert (entry.compute_capability, entry.is_of_hardware) == ("9.0", True)
    assert entry.speed["8b q m=1"].of_ceiling == 0.75
    assert (entry.sanitizer, found["rope"].sanitizer) == (NOT_RUN, CLEAN)


@pytest.mark.usefixtures("_plain_hashes")
@pytest.mark.parametrize(
    ("which", "change", "left"),
    [
        ("op", {"passed": False}, {"q8_0_hmma"}),
        ("row", {"passed": False}, {"rope"}),
        ("backend/test_ops.py", {"passed": False}, {"q8_0_hmma"}),  # wrong for some shape
        ("backend/test_ops.py", {"family": "another"}, {"q8_0_hmma"}),
        ("backend/cuda/test_many_row_kernels.py", {"passed": False}, {"rope"}),
        ("built", {"what": "something else"}, set()),  # then it proves nothing about the current sources
        ("built", {"earlier": True}, set()),
    ],
)
def test_gemm_16_nothing_is_entered_that_this_run_has_not_shown(
    tmp_path: Path, which: str, change: dict[str, Any], left: set[str]
) -> None:
    rows = [{**row, **change} if which in (row["what"], row.get("family")) else row for row in FOUND]
    assert ledger_stage.entries(context_of(tmp_path, *rows), "13.0.88").keys() == left


class Sanitized:
    """Replaces the sanitizer's tools: records their commands and returns prepared findings."""

    def __init__(self, found: dict[str, str]) -> None:
        self.found = found
        self.commands: list[list[str]] = []

    def __call__(self, context: Context, command: list[str], seconds: float) -> tuple[int, str]:
        self.commands.append(command)
        assert seconds > 0
        kernels = command[command.index("gpu_check.small_cases") + 2 :]
        tool = command[command.index("--tool") + 1]
        n_found = self.found.get(tool, "0 errors")
        lines = [f"ran {name}" for name in kernels] + [f"========= ERROR SUMMARY: {n_found}"]
        return (0 if n_found == "0 errors" else 9), "\n".join(lines)


@pytest.mark.parametrize("faulty", ["none", "racecheck", "initcheck"])
def test_every_kernel_goes_through_every_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, faulty: str) -> None:
    tools = Sanitized({faulty: "2 errors"})
    monkeypatch.setattr(sanitizer, "run_module", tools)
    monkeypatch.setattr(sanitizer.shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(Context, "kind", GPU_KINDS[0])
    context = Context(tmp_path, stage="sanitizer")
    if faulty == "racecheck":
        with pytest.raises(StageError, match=r"racecheck of norm and \d+ more: 2 found"):
            sanitizer.run(context, 30.0)
    else:
        sanitizer.run(context, 30.0)
    names = {*OPS, *(kernel.name for kernel in runnable_kernels(GPU_KINDS[0]))}
    for tool in sanitizer.TOOLS:
        rows = [row for row in context.found("sanitizer", "verdict") if row["tool"] == tool]
        assert sorted(name for row in rows for name in row["ran"]) == sorted(names)
        assert {row["verdict"] for row in rows} == {"2 found" if tool == faulty else CLEAN}
    assert tools.commands[0][:7] == [
        "compute-sanitizer",
        "--tool",
        "memcheck",
        "--error-exitcode",
        "9",
        "--print-limit",
        "20",
    ]
    assert bool(context.found("sanitizer", "note")) == (faulty == "initcheck")
    clean = {ledger_stage.verdict(context, name) for name in names}
    assert clean == ({"racecheck: 2 found"} if faulty == "racecheck" else {CLEAN})


@pytest.mark.parametrize(
    ("captures", "replays", "failures", "word"),
    [(4, 90, 0, []), (4, 90, 1, ["a: 1 captures failed: why"]), (4, 0, 0, ["a: no step was captured and done again"])],
)
def test_grf_3_captures_that_fail_do_not_pass(captures: int, replays: int, failures: int, word: list[str]) -> None:
    row = {"model": "a", "captures": captures, "replays": replays, "failures": failures, "last_failure": "why"}
    assert engine_stage.wrong_captures(row) == word


# The report.


def test_targets_are_filled_with_what_was_measured(tmp_path: Path) -> None:
    context = context_of(
        tmp_path,
        {"stage": "engine", "what": "decode", "model": "8b q8_0", "batch": 1, "depth": 0, "tokens_per_s": 431.2,
         "fraction": 0.8},
        {"stage": "engine", "what": "first token", "model": "8b bf16", "prompt": 512, "milliseconds": 13.96,
         "fraction": 0.65},
    )  # fmt: skip
    lines = report.target_lines(list(context.rows()))
    assert lines[2] == "| 8B Q8_0, batch 1 | 431 tok/s | 80 % | 60 % | 80 % | 85 % |"
    assert lines[-1] == "| 8B bf16, first token of 512 | 14.0 ms | 65 % | 22 ms | 14 ms | 12 ms |"
    assert lines[3].startswith("| 8B Q4_K_M, batch 1 | not measured | – |")


def test_det_13_the_price_of_the_deterministic_mode_stands_beside_what_it_may_be(tmp_path: Path) -> None:
    rows = [{"stage": "engine", "what": "deterministic", "model": "1b q4_k_m", "case": case, "cost": cost}
            for case, cost in (("batch 1 at 0", 0.021), ("prompt of 512", 2.0))]  # fmt: skip
    context = context_of(tmp_path, *rows)
    expected = "deterministic mode, 1b q4_k_m: batch 1 at 0 +2 %, prompt of 512 +200 % (meant: at most +15 %)"
    assert report.deterministic_lines(rows) == [expected]
    assert expected in report.summary(context, [])
    assert report.deterministic_lines([]) == []


def test_the_summary_has_forty_lines_at_most(tmp_path: Path) -> None:
    rows = [{"stage": "comparators", "what": "comparator", "name": str(i), "tokens_per_s": 1.0, "fraction": None}
            for i in range(80)]  # fmt: skip
    lines = report.summary(context_of(tmp_path, *rows), [Outcome("probe", "failed", 1.0, True, "no device")])
    assert len(lines) == report.MOST_LINES
    assert lines[-1] == "FAILED"
