"""The engine's thread needs no Python lock, wakes its reader at most once a step, and allocates nothing in a step."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from imp_service import _core, _testing
from support.models.tiny_assistant import tiny_assistant
from support.models.tiny_heads import TinyNextN
from support.models.tiny_models import tiny
from support.oracles.script_oracle import continuation, prompt_of

ROOT = Path(__file__).resolve().parents[2]
GREEDY = {"sampling": _core.SamplingOptions(temperature=0.0)}


def threaded(rule: str = "hash", **options: Any) -> _testing.ThreadedEngine:
    given = {"n_blocks": 512, "max_context": 4096, "max_running": 64, "step_tokens": 128, "max_waiting": 100, **options}
    return _testing.ThreadedEngine(_testing.Script(rule, records=False, max_rows=512), _core.EngineOptions(**given))


def collect(engine: _testing.ThreadedEngine, n_endings: int) -> list[Any]:
    events: list[Any] = []
    while sum(isinstance(e, _core.FinishedEvent | _core.FailedEvent) for e in events) < n_endings:
        select.select([engine.event_descriptor()], [], [])
        events += engine.drain_events()
    return events


def test_gen_1_the_thread_serves_what_the_loop_does() -> None:
    engine = threaded()
    for i in range(20):
        engine.generate(i, i + 1, prompt_of(10 + i, i), limits=_core.RunLimits(max_outputs=12), **GREEDY)
    events = collect(engine, 20)
    for i in range(20):
        tokens = [e.token for e in events if e.ticket == i and isinstance(e, _core.TokenEvent)]
        assert tokens == continuation(prompt_of(10 + i, i), 12)


def test_sch_12_the_engine_steps_while_python_is_held() -> None:
    """Nobody drains and the test holds the GIL: 300 steps pass with one wake-up."""
    engine = threaded("counter")
    engine.generate(1, 1, [1], limits=_core.RunLimits(max_outputs=1000), **GREEDY)
    engine.wait_for_steps_locked(300)
    assert engine.stats().n_wakeups == 1
    collect(engine, 1)


def test_sch_12_wake_ups_are_no_more_than_steps() -> None:
    engine = threaded("counter")
    for i in range(64):
        engine.generate(i, i + 1, [i % 16], limits=_core.RunLimits(max_outputs=100), **GREEDY)
    events = collect(engine, 64)
    stats = engine.stats()
    assert sum(isinstance(e, _core.TokenEvent) for e in events) == 6400 == stats.n_outputs
    assert 0 < stats.n_wakeups <= stats.n_steps + 64  # a command may be answered between steps


def test_sch_12_the_loop_pauses_where_nobody_drains_and_still_takes_commands() -> None:
    """The ring holds 50 events: stepping stops there, the engine still accepts an end, and draining resumes it."""
    engine = threaded("counter", max_queued_events=50)
    engine.generate(1, 1, [1], limits=_core.RunLimits(max_outputs=500), **GREEDY)
    engine.generate(2, 2, [3], limits=_core.RunLimits(max_outputs=500), **GREEDY)
    engine.wait_for_steps_locked(20)
    engine.end(2, 2)
    events = collect(engine, 2)
    tokens = [e.token for e in events if e.ticket == 1 and isinstance(e, _core.TokenEvent)]
    assert tokens == [(2 + i) % 16 for i in range(500)]
    assert [e.reason for e in events if e.ticket == 2 and isinstance(e, _core.FinishedEvent)] == ["cancelled"]


def test_sch_9_submitting_from_many_threads_loses_nothing() -> None:
    engine = threaded("counter", max_waiting=1000)

    def submit(worker: int) -> None:
        for i in range(20):
            name = 1000 * worker + i
            engine.generate(name, name + 1, [i % 16], limits=_core.RunLimits(max_outputs=5), **GREEDY)

    workers = [threading.Thread(target=submit, args=(worker,)) for worker in range(8)]
    for worker in workers:
        worker.start()
    events = collect(engine, 160)
    for worker in workers:
        worker.join()
    for worker in range(8):
        for i in range(20):
            tokens = [e.token for e in events if e.ticket == 1000 * worker + i and isinstance(e, _core.TokenEvent)]
            assert tokens == [(i + 1 + k) % 16 for k in range(5)]
    stats = engine.stats()
    assert (stats.running, stats.waiting, stats.blocks_live) == (0, 0, 0)


def test_y04_a_device_fault_ends_every_run_once_and_the_engine_takes_nothing_more() -> None:
    """Two runs decode and a third waits when a token of a fourth breaks the device: each gets its ending."""
    script = _testing.Script("counter", records=False, max_rows=512, faulting_token=15)
    options = {"n_blocks": 512, "max_context": 4096, "max_running": 3, "step_tokens": 128}
    engine = _testing.ThreadedEngine(script, _core.EngineOptions(**options))
    endless = _core.RunLimits(max_outputs=4000)
    sampling = _core.SamplingOptions(temperature=0.0, logit_bias={15: -100.0})
    for ticket in (1, 2):
        engine.generate(ticket, ticket, [ticket], limits=endless, sampling=sampling)
    engine.wait_for_steps_locked(10)
    engine.generate(3, 3, [15], limits=endless, sampling=sampling)
    ended = [e for e in collect(engine, 3) if not isinstance(e, _core.StartedEvent | _core.TokenEvent)]
    assert sorted((e.ticket, e.reason) for e in ended) == [(ticket, "DEVICE_FAULT") for ticket in (1, 2, 3)]
    assert engine.stats().stopped
    with pytest.raises(_core.DeviceError, match="the engine has stopped"):
        engine.generate(4, 4, [1], limits=endless, sampling=sampling)


@pytest.mark.long
def test_ses_10_what_is_held_back_begins_in_one_step_and_what_runs_goes_on() -> None:
    engine = threaded("counter", n_blocks=2048, max_context=32768)
    for number in range(20):
        steps = engine.stats().n_steps
        engine.hold()
        engine.hold()
        for i in range(8):
            engine.generate(i, 8 * number + i + 1, [i], limits=_core.RunLimits(max_outputs=1), **GREEDY)
        engine.release()
        engine.release()
        collect(engine, 8)
        assert engine.stats().n_steps == steps + 1
    engine.generate(1, 1000, [1], limits=_core.RunLimits(max_outputs=10_000), **GREEDY)
    engine.wait_for_steps_locked(engine.stats().n_steps + 1)
    engine.hold()
    engine.generate(2, 1001, [1], limits=_core.RunLimits(max_outputs=1), **GREEDY)
    engine.wait_for_steps_locked(engine.stats().n_steps + 100)
    drained = engine.drain_events()
    assert {event.ticket for event in drained} == {1}
    engine.release()
    # The first may have ended by now.
    collect(engine, 2 - sum(isinstance(event, _core.FinishedEvent) for event in drained))


def test_mod_21_an_engine_may_be_dropped_in_mid_run() -> None:
    for _ in range(20):
        engine = threaded("counter")
        engine.generate(1, 1, [1], limits=_core.RunLimits(max_outputs=4000), **GREEDY)
        engine.wait_for_steps_locked(3)
        del engine


def test_p3_options_have_no_unknown_names() -> None:
    with pytest.raises(AttributeError, match="max_runing"):
        _core.EngineOptions(max_runing=3)
    with pytest.raises(TypeError):
        _core.RunLimits(max_output=3)


COUNTER = r"""
// Counts every allocation of the process; loaded before everything else.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static _Atomic long count;
long allocations(void) { return count; }
extern void* __libc_malloc(size_t);
extern void* __libc_calloc(size_t, size_t);
extern void* __libc_realloc(void*, size_t);
extern void* __libc_memalign(size_t, size_t);
void* malloc(size_t n) { ++count; return __libc_malloc(n); }
void* calloc(size_t n, size_t m) { ++count; return __libc_calloc(n, m); }
void* realloc(void* p, size_t n) { ++count; return __libc_realloc(p, n); }
void* aligned_alloc(size_t a, size_t n) { ++count; return __libc_memalign(a, n); }
int posix_memalign(void** p, size_t a, size_t n) { ++count; *p = __libc_memalign(a, n); return *p ? 0 : 12; }
"""

COUNTED = """
import ctypes, sys
from imp_service import _core, _testing
allocations = ctypes.CDLL(None).allocations
allocations.restype = ctypes.c_long
n_sequences, path, guesses = int(sys.argv[1]), sys.argv[2], sys.argv[3]
options = _core.EngineOptions(n_blocks=n_sequences * 130, max_context=2000, max_running=64, max_waiting=100,
                              drafters=[guesses] if guesses in ("ngram", "head") else [], fixed_depth=guesses == "head")
if path:
    model = _core.Model.load(_core.open_model_file(path), threads=2, with_own_head=guesses == "head",
                             head_file=_core.open_model_file(sys.argv[4]) if sys.argv[4] else None,
                             state_snapshot_bytes=0)
    options.n_state_slots = model.n_state_slots
    engine = _testing.ManualModelEngine(model, options)
else:
    script = _testing.Script("hash" if guesses == "ngram" else "counter", records=False,
                             drafts=0.0 if guesses == "wrong" else -1.0)
    engine = _testing.ManualEngine(script, options, draft=_testing.ScriptDraft(script, n_sequences * 130, 2100,
                                   range(15)) if guesses == "draft" else None)
    del script
    engine.records_draws = False
for i in range(n_sequences):
    engine.generate(i, i + 1, [i % 16, 3, i // 16], limits=_core.RunLimits(max_outputs=1900), max_draft_tokens=3,
                    sampling=_core.SamplingOptions(temperature=0.7, seed=i, repetition_penalty=1.1))
engine.turns(100)
before = allocations(); done = engine.turns(300); few = allocations() - before  # an int for Python is one
before = allocations(); done = engine.turns(1000); many = allocations() - before
before = allocations(); keep = [bytearray(100) for _ in range(50)]; control = allocations() - before
print(done, many - few, control >= 50, engine.stats().drafts.n_drafted > 0)
"""


@pytest.fixture(scope="module")
def counting_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("allocations")
    source, library = folder / "counter.c", folder / "counter.so"
    source.write_text(COUNTER)
    subprocess.run(["cc", "-O1", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    return library


@pytest.mark.few(4)
@pytest.mark.parametrize(
    ("over", "n_sequences"),
    [
        ("script", 1),
        ("script", 64),
        ("model", 1),
        ("model", 5),
        ("wrong", 8),
        ("ngram", 8),
        ("draft", 8),
        ("head", 5),
        ("head over a state", 5),
        ("head over the model's cells", 5),
    ],
)
def test_kv_8_spc_9_a_steady_decode_step_allocates_nothing(
    counting_library: Path, tmp_path: Path, n_sequences: int, over: str
) -> None:
    """Counts allocations in 1000 steps, with block borders and indexing of full blocks, and checks the counter."""
    models = {
        "model": tiny("qwen3", context=2048),
        "head": TinyNextN(tiny("llama", context=2048)),
        "head over a state": TinyNextN(tiny("qwen35", n_layers=7, context=2048)),
        "head over the model's cells": (assistant := tiny_assistant(context=2048)).model,
    }
    head = str(assistant.write(tmp_path / "head.gguf")) if over.endswith("cells") else ""
    model = str(models[over].write(tmp_path / "m.gguf")) if over in models else ""
    path = os.pathsep.join(sys.path)
    environment = {**os.environ, "LD_PRELOAD": str(counting_library), "PYTHONPATH": path, "PYTHONMALLOC": "malloc"}
    out = subprocess.run(
        [sys.executable, "-c", COUNTED, str(n_sequences), model, over.split(" ", maxsplit=1)[0], head],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
    )
    assert out.stdout.split() == ["1000", "0", "True", str(over not in ("script", "model"))]
