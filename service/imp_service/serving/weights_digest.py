"""The digest of the served weights: computed once the model serves, on a thread that gives way to all others."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

from imp_service.core.load import model_path
from imp_service.core.weights import sha256_of, weight_files
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
            if not self.sha256:
                paths = weight_files(model_path(self._host.config))
                self._thread = threading.Thread(target=self._compute, args=(paths,), name="imp-digest", daemon=True)
                self._thread.start()

    def _compute(self, paths: Sequence[Path]) -> None:
        if hasattr(os, "setpriority"):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LEAST_PRIORITY)
        try:
            self.sha256 = sha256_of(paths, lambda: not self._is_stopped.is_set()) or ""
        except OSError:
            # The file is gone: what is served was read from it before, and its digest stays unknown.
            self.sha256 = ""
