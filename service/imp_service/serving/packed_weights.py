"""Writes the cache of packed weights in the background once the model serves."""

from __future__ import annotations

from collections.abc import Callable

from imp_service.core import Error
from imp_service.serving.lifecycle import Phase
from imp_service.serving.server_state import ServerState

EVENT = "packed weights"


class PackedWeights:
    """Writes the cache of packed weights while the server runs, if `model.packed_cache` names one that was not read."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._has_begun = False
        state.lifecycle.watch(self._enter)

    def _enter(self, phase: Phase) -> None:
        if phase is not Phase.SERVING or self._has_begun or (found := self._state.model.core.packed) is None:
            return
        self._has_begun = True
        log = self._state.telemetry.log
        if found["was_read"]:
            log.info(EVENT, message="read", path=found["path"])
        elif (path := found["path"]) is None:
            log.info(EVENT, message=f"not used: {found['why']}")
        else:
            log.info(EVENT, message=f"not read: {found['why']}", path=path)
            self._state.background.start("imp-packed", lambda goes_on: self._write(path, goes_on))

    def _write(self, path: str, goes_on: Callable[[], bool]) -> None:
        log = self._state.telemetry.log
        try:
            is_whole = self._state.model.core.write_packed(goes_on)
        except Error as error:
            log.warning(EVENT, message=f"not written: {error.message}", path=path)
        else:
            if is_whole:
                log.info(EVENT, message="written", path=path)
