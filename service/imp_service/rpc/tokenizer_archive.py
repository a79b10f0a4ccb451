"""The tokenizer's files as an archive, in pieces that fit a message."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

from imp_service.serving.prompt_cost import ID_BYTES
from imp_service.serving.server_state import ServerState

PIECE_BYTES = 256 * 1024


@dataclass(frozen=True, slots=True)
class ArchivePiece:
    """Bytes of the archive. The last piece has the digest of all."""

    content: bytes
    sha256: str


@dataclass(frozen=True, slots=True)
class _Archive:
    content: bytes
    sha256: str


class TokenizerArchive:
    """Made at the first call, on a worker. After a failure the next call tries again."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._making: asyncio.Task[_Archive] | None = None

    async def pieces(self) -> AsyncIterator[ArchivePiece]:
        """The archive from its first byte to its last."""
        if self._making is None or (self._making.done() and self._making.exception() is not None):
            self._making = asyncio.create_task(self._make())
        archive = await asyncio.shield(self._making)
        content = archive.content
        n_piece = min(PIECE_BYTES, self._state.settings.limits.max_message_bytes // 2)
        for start in range(0, len(content), n_piece):
            is_last = start + n_piece >= len(content)
            yield ArchivePiece(content[start : start + n_piece], archive.sha256 if is_last else "")

    async def _make(self) -> _Archive:
        model = self._state.model

        def make() -> _Archive:
            content = model.tokenizer.archive(model.text.template_source)
            return _Archive(content, hashlib.sha256(content).hexdigest())

        return await self._state.workers.run(make, ID_BYTES * model.tokenizer.vocab_size + PIECE_BYTES)
