"""imp tune: what it measures and writes, and how the settings use it. The clock is a table."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core
from imp_service.config import ConfigError, read_settings
from imp_service.config.machine import resolve_threads
from imp_service.core.load import load_weights
from imp_service.core.tune import Subject, preferences_of, tune
from imp_service.core.tuning_file import kernel_digest, key_here, read_tuning, tuning_here

Q8 = Subject("q8_0", 64, 64)
GENERIC = "q8_0_generic"
OTHERS = _core.interchangeable("q8_0", 64, 64)


def key(**changes: Any) -> dict[str, Any]:
    here = key_here(resolve_threads(read_settings(variables={})).settings)
    return {"cpu": here.cpu, "isa": here.isa, "threads": here.threads, "kernels": here.kernels, **changes}


def write(path: Path, **changes: Any) -> Path:
    preferences = [{"weight": "q8_0", "kernel": GENERIC, "max_rows": None}]
    document = {"version": 1, "key": key(), "preferences": preferences, "measured": [], **changes}
    path.write_text(json.dumps(document))
    return path


def settings_with(path: Path) -> Any:
    return resolve_threads(read_settings(None, [f"device.tuning={path}"], variables={})).settings


@pytest.mark.skipif(len(OTHERS) < 2, reason="this CPU has one kernel for this type")
def test_the_fastest_is_preferred_where_it_is_faster_by_more_than_chance() -> None:
    # Half the time at 1 row, two percent less at 8, twice the time at 512.
    factors = {1: 0.5, 8: 0.98, 512: 2.0}
    asked: list[tuple[str, int]] = []

    def clock(kernel: str, subject: Subject, rows: int) -> float:
        asked.append((kernel, rows))
        return rows * (factors[rows] if kernel == GENERIC else 1.0)

    choices = tune([Q8], "auto", 3, clock, lambda line: None)
    assert [(choice.rows, choice.kernel) for choice in choices] == [(1, GENERIC), (8, OTHERS[0]), (512, OTHERS[0])]
    assert choices[0].gain == 2.0
    assert preferences_of(choices) == (
        ("q8_0", GENERIC, 4),
        ("q8_0", OTHERS[0], 64),
        ("q8_0", OTHERS[0], None),
    )
    # Kernels alternate, and a clearly slower one is measured only once.
    assert [kernel for kernel, rows in asked if rows == 1] == OTHERS * 3
    assert [kernel for kernel, rows in asked if rows == 512].count(GENERIC) == 1
    # The control: if no kernel is faster, none is preferred.
    assert preferences_of(tune([Q8], "auto", 3, lambda *_: 1.0, lambda line: None)) == ()


def test_a_slow_moment_of_the_machine_changes_no_preference() -> None:
    moments = iter([1.0] * len(OTHERS) + [9.0] * len(OTHERS) + [1.0] * len(OTHERS))
    choices = tune([Q8], "auto", 3, lambda *_: next(moments, 1.0), lambda line: None)
    assert preferences_of(choices) == ()


def test_the_command_writes_what_the_settings_read(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("imp_service.core.tune.SECONDS", 0.001)
    monkeypatch.setattr("imp_service.core.tune.MEMORY_BYTES", 1)
    monkeypatch.setattr("imp_service.core.tune.TYPICAL", 64)
    status, out, err = call("tune", "--types", "q8_0,f32", "--reps", "1", "-o", "here.json", "--json")
    assert status == 0, err
    document = json.loads(out)
    assert json.loads((tmp_path / "here.json").read_text()) == document
    assert document["key"] == key()
    measured = {(row["weight"], row["rows"]): row["seconds"] for row in document["measured"]}
    assert sorted(measured) == sorted((dtype, rows) for dtype in ("q8_0", "f32") for rows in (1, 8, 512))
    assert list(measured["q8_0", 1]) == OTHERS
    assert all(seconds > 0 for seconds in measured["q8_0", 1].values())
    tuning = read_tuning(tmp_path / "here.json")
    assert tuning_here(settings_with(tmp_path / "here.json")) == (list(tuning.preferences), "")
    assert [path.name for path in tmp_path.iterdir()] == ["here.json"]  # no other file is left


def test_auto_is_measured_and_written_as_all_that_this_cpu_has():
    isa = key_here(resolve_threads(read_settings(variables={})).settings).isa
    assert _core.interchangeable("q8_0", 64, 64, isa=isa) == OTHERS
    assert _core.missing_isa(isa) == ""


@pytest.mark.skipif(len(OTHERS) < 2, reason="this CPU has one instruction set")
def test_a_tuning_of_other_instruction_sets_is_not_used(tmp_path: Path):
    path = write(tmp_path / "t.json")
    part = resolve_threads(read_settings(None, [f"device.tuning={path}", "device.isa=generic"], variables={})).settings
    preferences, remark = tuning_here(part)
    assert preferences == []
    assert f"isa {_core.isa_name()}, here generic" in remark
    # The same features in another order are the same CPU.
    words = "+".join(reversed(_core.isa_name().split("+")))
    whole = resolve_threads(
        read_settings(None, [f"device.tuning={path}", f"device.isa={words}"], variables={})
    ).settings
    assert tuning_here(whole) == ([("q8_0", GENERIC, None)], "")


def test_the_models_own_types_are_measured(call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("imp_service.core.tune.machine_clock", lambda config: (config, lambda *_: 1.0))
    status, out, _ = call("tune", "--reps", "1", "--set", "device.kind=cpu")
    assert status == 0
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["weights", "fastest", "by", "order", "rows", "µs", "gain"]
    assert {line[0] for line in lines[1:]} == {"q8_0"}  # the built-in model's matrices
    assert json.loads((tmp_path / "tuning.json").read_text())["preferences"] == []


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--types", "q8_0,"), "expected names of weight types"),
        (("--types", "q9"), "expected one of f32"),
        (("--types", "q8_0", "-m", "x.gguf"), "not allowed with"),
        (("--types", "q8_0", "--set", "device.kind=cuda"), "device.kind: cuda, expected cpu"),
        (("--types", "q8_0", "--reps", "0"), "expected numbers of at least 1"),
    ],
)
def test_l18_bad_usage(call, words: tuple[str, ...], part: str):
    status, out, err = call("tune", *words)
    assert (status, out) == (64, "")
    assert part in err


def test_a_tuning_is_used_and_explained(call, tmp_path: Path):
    path = write(tmp_path / "t.json")
    status, out, err = call("kernels", "--explain", "q8_0", "64x64", "--json", "--set", f"device.tuning={path}")
    reasons = {row["kernel"]: row["reason"] for row in json.loads(out)["candidates"] if row["accepted"]}
    assert (status, err, reasons) == (0, "", {GENERIC: "tuned, any number of rows"})
    status, out, _ = call("inspect", "--json", "--tensors", "--set", f"device.tuning={path}")
    kernels = {tuple(weight["kernels"]) for weight in json.loads(out)["tensors"] if weight["dtype"] == "q8_0"}
    assert (GENERIC,) in kernels
    loaded = load_weights(read_settings(None, [f"device.tuning={path}"], variables={}))
    assert loaded.warnings == tuple(loaded.model.warnings)
    assert (GENERIC,) in {tuple(weight["kernels"]) for weight in loaded.model.weights}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"cpu": "another"}, "cpu another, here "),
        ({"isa": "sse"}, "isa sse, here "),
        ({"threads": 999}, "threads 999, here "),
        ({"kernels": "0" * 16}, f"kernels {'0' * 16}, here "),
    ],
)
def test_a_tuning_of_another_machine_is_a_warning_and_changes_nothing(changes, words: str, tmp_path: Path, call):
    path = write(tmp_path / "t.json", key=key(**changes))
    preferences, remark = tuning_here(settings_with(path))
    assert preferences == []
    assert f"not used, it was measured on another machine: {words}" in remark
    loaded = load_weights(read_settings(None, [f"device.tuning={path}"], variables={}))
    assert loaded.warnings == (*loaded.model.warnings, remark)
    assert (GENERIC,) not in {tuple(weight["kernels"]) for weight in loaded.model.weights}
    assert remark in call("kernels", "--explain", "q8_0", "64x64", "--set", f"device.tuning={path}")[2]


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "is not JSON"),
        ("[]", "expected version, key, preferences and measured"),
        ('{"version": 2, "key": {}, "preferences": [], "measured": []}', "version 2, expected 1"),
        ('{"version": 1, "key": {}, "preferences": [], "measured": []}', "is not a tuning"),
        ('{"version": 1, "key": 3, "preferences": [], "measured": []}', "is not a tuning"),
    ],
)
def test_a_file_that_is_no_tuning_is_an_error(text: str, part: str, tmp_path: Path):
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(ConfigError, match=part) as caught:
        tuning_here(settings_with(tmp_path / "t.json"))
    assert caught.value.where.startswith("device.tuning: ")


@pytest.mark.parametrize(
    "row",
    [
        {"weight": "q8_0", "kernel": GENERIC},
        {"weight": 1, "kernel": GENERIC, "max_rows": None},
        {"weight": "q8_0", "kernel": GENERIC, "max_rows": True},
        {"weight": "q8_0", "kernel": GENERIC, "max_rows": "4"},
        "q8_0",
    ],
)
def test_a_preference_that_is_none_is_an_error(row: object, tmp_path: Path):
    with pytest.raises(ConfigError, match="is not a tuning of this version of imp"):
        tuning_here(settings_with(write(tmp_path / "t.json", preferences=[row])))


def test_a_tuning_that_is_missing_or_names_strangers_is_an_error(tmp_path: Path):
    with pytest.raises(ConfigError, match="no such file"):
        load_weights(read_settings(None, [f"device.tuning={tmp_path / 'gone.json'}"], variables={}))
    strangers = [{"weight": "q8_0", "kernel": "q8_0_avx3", "max_rows": None}]
    path = write(tmp_path / "t.json", preferences=strangers)
    with pytest.raises(ConfigError, match="tuning: q8_0: no kernel q8_0_avx3"):
        load_weights(read_settings(None, [f"device.tuning={path}"], variables={}))


def test_the_digest_changes_with_the_list():
    kernels = _core.kernels()
    assert kernel_digest(kernels) == kernel_digest(_core.kernels())
    assert kernel_digest(kernels) != kernel_digest(kernels[1:])
    assert kernel_digest(kernels) != kernel_digest([kernels[1], kernels[0], *kernels[2:]])
