"""The cache of packed weights: a start tells the log whether it found one, and else writes it while it serves."""

from __future__ import annotations

import os
import threading

from imp_service.core import Error
from imp_service.serving.host import Host
from imp_service.serving.lifecycle import Phase
from imp_service.serving.weights_digest import LEAST_PRIORITY

EVENT = "packed weights"
# A thread that is told to stop does so between two pieces; only a disk can make it wait for longer.
LAST_SECONDS = 1.0


class PackedWeights:
    """Begins when the host serves, ends when it stops. Does nothing without `model.packed_cache`."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        host.lifecycle.watch(self._enter)

    @property
    def is_writing(self) -> bool:
        """The thread is alive: the interpreter must not be taken down around it."""
        return self._thread is not None and self._thread.is_alive()

    def _enter(self, phase: Phase) -> None:
        if phase is Phase.STOPPED:
            self._is_stopped.set()
            if self._thread is not None:
                self._thread.join(LAST_SECONDS)  # it takes away what it has written
            return
        if phase is not Phase.SERVING or self._thread is not None or (found := self._host.model.core.packed) is None:
            return
        if found["was_read"]:
            self._host.telemetry.log.info(EVENT, message="read", path=found["path"])
            return
        if found["path"] is None:
            self._host.telemetry.log.info(EVENT, message=f"not used: {found['why']}")
            return
        self._host.telemetry.log.info(EVENT, message=f"not read: {found['why']}", path=found["path"])
        self._thread = threading.Thread(target=self._write, args=(found["path"],), name="imp-packed", daemon=True)
        self._thread.start()

    def _write(self, path: str) -> None:
        log = self._host.telemetry.log
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LEAST_PRIORITY)
        try:
            is_whole = self._host.model.core.write_packed(lambda: not self._is_stopped.is_set())
        except Error as error:
            log.warning(EVENT, message=f"not written: {error.message}", path=path)
        else:
            if is_whole:
                log.info(EVENT, message="written", path=path)
