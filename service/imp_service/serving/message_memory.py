"""Counts the bytes of large messages on their way. The memory plan has room for that many, over every transport."""

from __future__ import annotations

from types import TracebackType

from imp_service.serving.refusal import Refusal

# A smaller message is not counted here: the memory plan counts one for each connection.
SMALL_MESSAGE_BYTES = 16 * 1024
RETRY_SECONDS = 1.0


class MessageMemory:
    """The messages that are being received, or those that are being sent. On the event loop's thread."""

    def __init__(self, what: str, max_bytes: int) -> None:
        """`what` says in an error which messages these are."""
        self._what = what
        self._max_bytes = max_bytes
        self.n_bytes = 0

    def hold(self, n_bytes: int) -> None:
        """Counts bytes until release(). Raises QUEUE_FULL if there is no room for them."""
        if self.n_bytes + n_bytes > self._max_bytes:
            raise Refusal(
                "QUEUE_FULL",
                f"{self._what} hold {self.n_bytes} bytes, and this one needs {n_bytes} more: the memory plan has "
                f"{self._max_bytes}, a multiple of limits.max_message_bytes",
                {"bound": "limits.max_message_bytes"},
                retry_after=RETRY_SECONDS,
            )
        self.n_bytes += n_bytes

    def release(self, n_bytes: int) -> None:
        """The bytes are no longer in memory."""
        self.n_bytes -= n_bytes

    def message(self) -> HeldMessage:
        """Counts the bytes of one message, until its `with` block ends."""
        return HeldMessage(self)


class HeldMessage:
    """One message, as far as it is in memory."""

    def __init__(self, memory: MessageMemory) -> None:
        self._memory = memory
        self._n_counted = 0

    def grow(self, n_bytes: int) -> None:
        """The message takes `n_bytes` in all. Raises QUEUE_FULL if there is no room for them."""
        wanted = max(0, n_bytes - SMALL_MESSAGE_BYTES)
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
