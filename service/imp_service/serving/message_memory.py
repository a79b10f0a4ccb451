"""Counts the bytes of large messages on their way. The memory plan has room for that many, over every transport."""

from __future__ import annotations

from dataclasses import dataclass
from types import TracebackType

from imp_service.serving.refusal import Refusal

# A smaller message is not counted here: the memory plan counts one for each connection.
SMALL_MESSAGE_BYTES = 16 * 1024
RETRY_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class MessageLimit:
    """The most bytes of a request's message or body, and the setting that says so."""

    key: str
    n_bytes: int

    def __str__(self) -> str:
        return f"{self.key} = {self.n_bytes}"


class MessageMemory:
    """The messages that are being received, or those that are being sent. On the event loop's thread."""

    def __init__(self, what: str, max_bytes: int, bound: str = "limits.max_message_bytes") -> None:
        """`what` says in an error which messages these are, and `bound` which setting decides their room."""
        self._what = what
        self.max_bytes = max_bytes
        self._bound = bound
        self.n_bytes = 0

    def hold(self, n_bytes: int) -> None:
        """Counts bytes until release(). Raises QUEUE_FULL if there is no room for them."""
        if self.n_bytes + n_bytes > self.max_bytes:
            raise Refusal(
                "QUEUE_FULL",
                f"{self._what} hold {self.n_bytes} bytes, and this one needs {n_bytes} more: the memory plan has "
                f"{self.max_bytes}, by {self._bound}",
                {"bound": self._bound},
                retry_after=RETRY_SECONDS,
            )
        self.n_bytes += n_bytes

    def release(self, n_bytes: int) -> None:
        """The bytes are no longer in memory."""
        self.n_bytes -= n_bytes

    def message(self, uncounted: int = SMALL_MESSAGE_BYTES) -> HeldMessage:
        """Counts the bytes of one message but the first ones, until its `with` block ends."""
        return HeldMessage(self, uncounted)


class HeldMessage:
    """One message, as far as it is in memory: of its bytes those from the first `uncounted` on."""

    def __init__(self, memory: MessageMemory, uncounted: int = SMALL_MESSAGE_BYTES) -> None:
        self._memory = memory
        self._uncounted = uncounted
        self._n_counted = 0

    def grow(self, n_bytes: int) -> None:
        """The message takes `n_bytes` in all. Raises QUEUE_FULL if there is no room for them."""
        wanted = max(0, n_bytes - self._uncounted)
        if wanted > self._n_counted:
            self._memory.hold(wanted - self._n_counted)
            self._n_counted = wanted

    def close(self) -> None:
        """The message is no longer in memory."""
        self._memory.release(self._n_counted)
        self._n_counted = 0

    def __enter__(self) -> HeldMessage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
