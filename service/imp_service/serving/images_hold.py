"""The images of a request on their way to the engine: their bytes are counted, and they are decoded off the loop."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from imp_service.api.options import Prompt
from imp_service.core import Error
from imp_service.generation.prompt_images import PromptImages
from imp_service.serving.prompt_cost import image_bytes
from imp_service.serving.server_state import ServerState
from imp_service.text import TextError


class ImagesHold:
    """Counts the bytes of a prompt's images within a `with` block. Raises QUEUE_FULL if there is no room for them."""

    def __init__(self, state: ServerState, prompt: Prompt) -> None:
        self._state = state
        self._n_sent = image_bytes(prompt)
        self._n_held = 0

    def __enter__(self) -> Self:
        self._hold(self._n_sent)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state.waiting_images.release(self._n_held)

    async def decode(self, images: PromptImages) -> None:
        """Decodes planned images, whose pixels count too. A caller that leaves does not wait for it."""
        if not images.plans:
            return
        self._hold(images.decoded_bytes)
        try:
            tiles = await images.decode()
        except (Error, TextError):
            self._state.telemetry.metrics.undecoded_images.inc()
            raise
        await self._state.workers.write(lambda: images.take(tiles))

    def _hold(self, n_bytes: int) -> None:
        if n_bytes:
            self._state.waiting_images.hold(n_bytes)
            self._n_held += n_bytes
