"""The digest of the served weights: computed once the model serves, on a thread that gives way to all others."""

from __future__ import annotations

import os
import threading

from imp_service.core import Error
from imp_service.core.weights import sha256_of
from imp_service.generation import LanguageModel
from imp_service.serving.host import Host
from imp_service.serving.lifecycle import Phase

LEAST_PRIORITY = 19


class WeightsDigest:
    """Begins when the host serves, ends when it stops."""

    def __init__(self, host: Host) -> None:
        self._host = host
        # In hexadecimal; empty until known. Set once, by the thread.
        self.sha256 = ""
        self._is_stopped = threading.Event()
        self._thread: threading.Thread | None = None
        host.lifecycle.watch(self._enter)

    def _enter(self, phase: Phase) -> None:
        if phase is Phase.STOPPED:
            self._is_stopped.set()
        elif phase is Phase.SERVING and self._thread is None:
            # Checked against the file before it was loaded.
            self.sha256 = self._host.settings.model.sha256 or ""
            model = self._host.model
            if self.sha256:
                _close(model)
            else:
                self._thread = threading.Thread(target=self._compute, args=(model,), name="imp-digest", daemon=True)
                self._thread.start()

    def _compute(self, model: LanguageModel) -> None:
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LEAST_PRIORITY)
        try:
            self.sha256 = sha256_of(model.weight_files, lambda: not self._is_stopped.is_set()) or ""
        except Error:
            # The file was changed, or the model is closed: the digest of what was read before stays unknown.
            self.sha256 = ""
        finally:
            _close(model)


def _close(model: LanguageModel) -> None:
    for file in model.weight_files:
        file.close()
