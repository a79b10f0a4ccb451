"""The watch over the event loop in every test of a server: it reports long steps of imp's code, and nothing else."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from imp_service.pb import inference_pb2_grpc
from support.findings import FINDINGS
from support.loop_holds import FAR, FIRST_SECONDS, MOST_SECONDS
from support.loop_thread import loop_thread
from support.served import ask, serve


def burn(seconds: float = 1.5 * MOST_SECONDS) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def wait() -> None:
    threading.Event().wait(1.5 * MOST_SECONDS)


def found_after(callback: Callable[[], None]) -> list[str]:
    """Returns the findings of the watch after a callback on the loop."""
    thread, done = loop_thread(), threading.Event()
    FINDINGS.take()
    thread.loop.call_soon_threadsafe(callback)
    thread.loop.call_soon_threadsafe(done.set)
    assert done.wait(60)
    return FINDINGS.take()


def test_o03_a_step_of_imp_that_holds_the_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(burn, "__module__", "imp_service.somewhere")
    assert found_after(burn) == []
    (found,) = found_after(burn)
    assert found.endswith("ms by imp_service.somewhere.burn")


def test_o03_a_step_far_over_the_limit_is_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def burn_long() -> None:
        burn((FAR + 1) * MOST_SECONDS)

    monkeypatch.setattr(burn_long, "__module__", "imp_service.elsewhere")
    assert len(found_after(burn_long)) == 1


def test_o03_a_step_of_a_test_or_one_that_waits_for_the_processor_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    assert found_after(burn) == []
    monkeypatch.setattr(wait, "__module__", "imp_service.somewhere")
    assert found_after(wait) == []


@pytest.mark.long
def test_o03_a_call_that_holds_the_loop_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    with serve() as served:
        FINDINGS.take()
        monkeypatch.setattr("imp_service.rpc.generate.refuse_late", lambda call: burn(1.5 * FIRST_SECONDS))
        stub = inference_pb2_grpc.InferenceServiceStub(served.channel())
        for _ in range(2):
            list(stub.Generate(ask([1], 1)))
        monkeypatch.undo()
        served.wait_for_calls()
        found = FINDINGS.take()
    assert found and all("Generate" in each for each in found)
