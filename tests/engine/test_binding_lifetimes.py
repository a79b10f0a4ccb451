"""Objects of the core that Python drops, callbacks that raise, and several engines in one process."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import imp_service
from imp_service import GenerationRequest, SamplingOptions, StopOptions, _core, _testing
from imp_service.api.replies import Chunk
from imp_service.core import EngineClient, Error
from imp_service.models import demo_model_path
from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER
from support.run.quick_run import Repeats
from support.run.release_run import repetitions
from support.servers.served_models import built_in

OPTIONS: dict[str, Any] = {"n_blocks": 64, "max_context": 256, "max_running": 8}


def script_engine() -> Any:
    return _testing.ThreadedEngine(_testing.Script("counter", vocab_size=256), _core.EngineOptions(**OPTIONS))


@pytest.mark.long
def test_y20_an_engine_that_is_dropped_at_work_takes_its_model_along(repeats: Repeats) -> None:
    for n_steps in range(0, 20, 20 // repeats(20)):
        model = _core.Model.load(_core.open_model_file(demo_model_path()))
        engine = _core.Engine(model, _core.EngineOptions(n_blocks=model.n_blocks, max_context=model.max_context))
        for ticket in range(1, 5):
            engine.generate(ticket, ticket, [300 + ticket], limits=_core.RunLimits(max_outputs=-1))
        del model  # the engine keeps it
        gc.collect()
        while engine.stats().n_steps < n_steps:
            pass
        events = engine.drain_events()
        del engine
        # The events outlive both.
        assert {type(event).__name__ for event in events} <= {"StartedEvent", "TokenEvent", "FinishedEvent"}
        assert all(event.ticket in range(1, 5) for event in events)


def test_a_model_serves_one_engine_at_a_time() -> None:
    model = _core.Model.load(_core.open_model_file(demo_model_path()))
    options = _core.EngineOptions(n_blocks=model.n_blocks, max_context=model.max_context)
    engine = _core.Engine(model, options)
    with pytest.raises(_core.InvalidArgument, match="a model serves one engine at a time"):
        _core.Engine(model, options)
    del engine
    gc.collect()
    with pytest.raises(_core.InvalidArgument, match="max_context"):  # a refused one holds nothing
        _core.Engine(model, _core.EngineOptions(n_blocks=model.n_blocks, max_context=0))
    assert _core.Engine(model, options).drain_events() == []


class Told(Exception):
    """An exception that a callback raises."""


def test_y20_a_callback_that_raises_ends_the_load_with_its_own_error() -> None:
    file = _core.open_model_file(demo_model_path())
    seen = []

    def progress(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 3:
            raise Told(f"{done} of {total}")

    with pytest.raises(Told, match="of"):
        _core.Model.load(file, progress=progress)
    assert len(seen) == 3
    with pytest.raises(TypeError):
        _core.Model.load(file, progress=lambda: None)  # called with two arguments
    assert _core.Model.load(file).vocab_size > 0


def test_y20_a_handler_that_raises_takes_no_event_from_another() -> None:
    client = EngineClient(script_engine())
    heard: list[Any] = []

    def fail(_: Any) -> None:
        raise Told

    bad, good = client.expect(fail), client.expect(heard.append)
    with client.together():
        for ticket in (bad, good):
            client.engine.generate(ticket, ticket, [10], limits=_core.RunLimits(max_outputs=5))
    n_raised = 0
    while not any(isinstance(event, _core.FinishedEvent) for event in heard):
        try:
            client.wait(lambda: any(isinstance(event, _core.FinishedEvent) for event in heard), timeout=HANGS_AFTER)
        except Told:
            n_raised += 1
    assert n_raised >= 1
    assert [event.token for event in heard if isinstance(event, _core.TokenEvent)] == [11, 12, 13, 14, 15]
    client.close()


def test_y20_no_handler_is_called_after_the_end() -> None:
    client = EngineClient(script_engine())
    heard: list[Any] = []
    ticket = client.expect(heard.append)
    client.engine.generate(ticket, 1, [10], limits=_core.RunLimits(max_outputs=200))
    client.close()
    n_heard = len(heard)
    for call in (client.dispatch, client.fileno):
        with pytest.raises(Error) as closed:
            call()
        assert closed.value.reason == "CANCELLED"
    assert len(heard) == n_heard


def test_y24_an_engine_that_comes_and_goes_does_not_touch_the_one_that_serves() -> None:
    canary = built_in().canary
    assert canary is not None  # narrows
    request = GenerationRequest(list(canary.prompt_ids), SamplingOptions(temperature=0.0), StopOptions(max_tokens=24))
    expected = list(canary.output_ids[:24])
    with imp_service.load(None, "device.threads=2") as serving:
        for round_number in range(12):
            stream = serving.generate(request)
            next(stream)
            other = imp_service.load(None, "device.threads=2", f"model.overrides.rope_theta={50 + round_number}")
            others = [other.generate(request) for _ in range(3)]
            next(others[0])
            replies = [next(stream) for _ in range(round_number % 3)]
            other.close()  # while it is at work
            replies += stream
            assert [token for reply in replies if isinstance(reply, Chunk) for token in reply.token_ids] == expected


# A request that its caller reads, one that it cancels, one that is refused, and one of a session.
LOOP = """
import gc, sys
from imp_service import _core, _testing
from support.engine.model_engine import collect_from

n_rounds, n_rest = int(sys.argv[1]), 200
engine = _testing.ThreadedEngine(
    _testing.Script("counter", vocab_size=256, records=False),
    _core.EngineOptions(n_blocks=64, max_context=256, max_running=8, max_waiting=8),
)
ids = iter(range(1, 1 << 62))
limits = _core.RunLimits(max_outputs=3)

def resident():
    gc.collect()
    lines = open("/proc/self/status").read().splitlines()
    return int(next(line for line in lines if line.startswith("RssAnon")).split()[1])

def some():
    tickets = [next(ids) for _ in range(5)]
    whole, gone, held, closing, wrong = tickets
    engine.hold()
    engine.generate(whole, whole, [10, whole % 200], limits=limits)
    engine.generate(gone, gone, [20, 21], limits=limits)
    engine.end(gone, gone, "cancelled")
    engine.open(held)
    engine.run(held, held, [30], limits=limits)
    engine.release()
    try:
        engine.generate(wrong, wrong, [999])
    except _core.InvalidArgument:
        pass
    collect_from(engine, whole, gone, held)
    engine.close(closing, held)
    collect_from(engine, closing)

def requests(n):
    for _ in range(n // 5):
        some()

requests(n_rounds // 4)
before = resident()
requests(n_rounds)
print(resident() - before)
"""
N_REQUESTS = repetitions(1_000_000, 20_000)


def test_y23_lif_16_requests_in_a_loop_leave_nothing(tmp_path: Path) -> None:
    environment = clean_environment(tmp_path)
    environment["PYTHONPATH"] += f"{os.pathsep}{Path(__file__).parents[1]}"
    command = [sys.executable, "-P", "-c", LOOP, str(N_REQUESTS)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout) <= 1024, f"{ran.stdout.strip()} KiB more after {N_REQUESTS} requests"
