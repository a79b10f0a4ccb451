"""Ctrl-C within a call cancels it. The exception is raised only after gRPC returns."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from imp_service.client.interrupts import Interruptible


def press_ctrl_c() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def test_ctrl_c_cancels_lets_the_block_end_and_then_raises():
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), Interruptible(lambda: steps.append("cancelled")):
        press_ctrl_c()
        steps.append("the block went on")
    assert steps == ["cancelled", "the block went on"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_the_block_raises_gives_way_to_the_interrupt():
    with pytest.raises(KeyboardInterrupt), Interruptible(lambda: None):
        press_ctrl_c()
        raise ValueError("the call was cancelled")


def test_without_ctrl_c_nothing_is_changed():
    with pytest.raises(ValueError), Interruptible(lambda: None):
        raise ValueError("the call failed")
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_another_handler_stays_in_place():
    seen: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: seen.append("theirs"))
    try:
        with Interruptible(lambda: seen.append("ours")):
            press_ctrl_c()
    finally:
        signal.signal(signal.SIGINT, before)
    assert seen == ["theirs"]


def test_other_threads_have_no_handler_of_their_own():
    ended: list[bool] = []

    def block() -> None:
        with Interruptible(lambda: None):
            ended.append(True)

    thread = threading.Thread(target=block)
    thread.start()
    thread.join()
    assert ended == [True]
