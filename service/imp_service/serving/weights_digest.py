"""Computes the digest of the weights, in the background once the model serves."""

from __future__ import annotations

from collections.abc import Callable

from imp_service.core import Error
from imp_service.core.weights import sha256_of
from imp_service.generation import ModelRuntime
from imp_service.serving.background import BackgroundThreads
from imp_service.serving.lifecycle import Lifecycle, Phase


class WeightsDigest:
    """The SHA-256 of the model's files, computed once the server serves."""

    def __init__(
        self,
        lifecycle: Lifecycle,
        background: BackgroundThreads,
        model: Callable[[], ModelRuntime],
        checked: Callable[[], str | None],
    ) -> None:
        """`checked` returns the digest of the settings: it was compared with the file before the load."""
        self._background, self._model, self._checked = background, model, checked
        # In hexadecimal; empty until known. Set once, by the thread.
        self.sha256 = ""
        self._has_begun = False
        lifecycle.watch(self._enter)

    def _enter(self, phase: Phase) -> None:
        if phase is not Phase.SERVING or self._has_begun:
            return
        self._has_begun = True
        checked, model = self._checked(), self._model()
        if checked:
            self.sha256 = checked
            _close(model)
        else:
            self._background.start("imp-digest", lambda goes_on: self._compute(model, goes_on))

    def _compute(self, model: ModelRuntime, goes_on: Callable[[], bool]) -> None:
        try:
            self.sha256 = sha256_of(model.weight_files, goes_on) or ""
        except Error:
            # The file has changed, or the model is closed: it stays unknown.
            self.sha256 = ""
        finally:
            _close(model)


def _close(model: ModelRuntime) -> None:
    for file in model.weight_files:
        file.close()
