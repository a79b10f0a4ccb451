"""Lets a few calls at a time receive their request.

gRPC has no bound for messages that are incomplete: once a call reads, its client may send up to the largest message. A
call that does not read yet gets no more than the window of its stream.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from imp_service.rpc.call import GrpcCall
from imp_service.serving.refusal import Refusal

# A request that takes longer ends where other calls wait for its place.
PATIENCE_SECONDS = 1.0
# The most calls that wait for a place, over all connections.
MAX_WAITING = 1024

Waiting = tuple[GrpcCall, "asyncio.Future[None]"]


class MessageGate:
    """On the event loop's thread. Connections take turns, and one connection never has all places."""

    def __init__(self, n_places: int) -> None:
        self._n_places = n_places
        # The calls that read, each with the time when it began; the oldest is first.
        self._reading: dict[GrpcCall, float] = {}
        # By connection; the next turn is that of the first.
        self._waiting: dict[str, deque[Waiting]] = {}
        self._n_waiting = 0
        self._timer: asyncio.TimerHandle | None = None

    async def read(self, call: GrpcCall) -> Any:
        """The request of a call, or gRPC's EOF. Raises QUEUE_FULL if too many calls wait."""
        await self._enter(call)
        try:
            return await call.context.read()
        finally:
            del self._reading[call]
            self._give_places()

    async def _enter(self, call: GrpcCall) -> None:
        if call.peer not in self._waiting and self._has_place(call.peer):
            self._begin(call)
            return
        if self._n_waiting >= MAX_WAITING:
            words = f"{MAX_WAITING} calls wait to send their request"
            raise Refusal("QUEUE_FULL", words, {"bound": "limits.max_message_bytes"}, retry_after=PATIENCE_SECONDS)
        entered = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(call.peer, deque()).append((call, entered))
        self._n_waiting += 1
        self._look_later()
        try:
            await entered
        except BaseException:
            if not entered.cancelled():
                # The place came at the moment when the call ended.
                del self._reading[call]
                self._give_places()
            raise

    def _has_place(self, peer: str) -> bool:
        if len(self._reading) >= self._n_places:
            return False
        return sum(each.peer == peer for each in self._reading) < max(1, self._n_places - 1)

    def _begin(self, call: GrpcCall) -> None:
        self._reading[call] = asyncio.get_running_loop().time()

    def _give_places(self) -> None:
        """Free places go to the connections in turn."""
        for peer in list(self._waiting):
            while peer in self._waiting and self._has_place(peer):
                # Its next turn comes after those of the others.
                queue = self._waiting.pop(peer)
                call, entered = queue.popleft()
                self._n_waiting -= 1
                if queue:
                    self._waiting[peer] = queue
                if not entered.done():
                    self._begin(call)
                    entered.set_result(None)
                    break

    def _look_later(self) -> None:
        if self._timer is None and self._waiting:
            self._timer = asyncio.get_running_loop().call_later(PATIENCE_SECONDS, self._end_slow)

    def _end_slow(self) -> None:
        """Ends calls that have had a place for too long, if another call needs it."""
        self._timer = None
        self._give_places()
        before = asyncio.get_running_loop().time() - PATIENCE_SECONDS
        for peer in self._waiting:
            is_full = len(self._reading) >= self._n_places
            for call, began in self._reading.items():
                if began <= before and (is_full or call.peer == peer):
                    call.end(_too_slow())
        self._look_later()


def _too_slow() -> Refusal:
    words = "the request arrived too slowly, and other calls wait to send theirs"
    return Refusal("QUEUE_FULL", words, {"bound": "limits.max_message_bytes"}, retry_after=PATIENCE_SECONDS)
