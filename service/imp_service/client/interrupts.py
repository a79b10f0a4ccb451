"""Ctrl-C during a call: cancels it, and raises only once gRPC has returned."""

import signal
import threading
from collections.abc import Callable
from types import TracebackType


class Interruptible:
    """Within this block Ctrl-C calls `cancel`; the end of the block raises KeyboardInterrupt.

    Raised at once, inside gRPC, the exception could leave a lock taken, and the next call would wait for ever. Has no
    effect on other threads, or if SIGINT has another handler.
    """

    def __init__(self, cancel: Callable[[], object]) -> None:
        self._cancel = cancel
        self._is_pressed = False
        self._is_installed = False

    def __enter__(self) -> None:
        is_ours = threading.current_thread() is threading.main_thread()
        if is_ours and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            signal.signal(signal.SIGINT, self._press)
            self._is_installed = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_installed:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        if self._is_pressed:
            raise KeyboardInterrupt from None

    def _press(self, *_: object) -> None:
        self._is_pressed = True
        self._cancel()


def no_call() -> None:
    """There is no call to cancel yet."""
