"""A call through Ray's proxy: implements the gRPC context of servicers on top of Ray's.

Ray sends trailing metadata and status details to the client only together with a message. So each stream ends with an
empty message, which imp.v1 never sends; proxied_services.py removes it. Ray reads the metadata when it sends, possibly
after later changes, so values that were set are never removed.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

if TYPE_CHECKING:  # Ray is an extra. A call needs only the object that Ray passes to it.
    from ray.serve.grpc_util import RayServegRPCContext

Pairs = Sequence[tuple[str, str | bytes]]
Handler = Callable[[Any, Any], Awaitable[bytes | None]]


class Reply:
    """Serialized bytes in place of a message, since Ray serializes what methods return."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self._content


class ProxiedContext:
    """The part of grpc.aio.ServicerContext that imp uses. On the thread of the event loop."""

    def __init__(self, proxy: RayServegRPCContext, contents: AsyncIterator[bytes]) -> None:
        self._proxy = proxy
        self._contents = contents
        self._initial: Pairs = ()
        # One message at a time: write() waits until Ray has taken it.
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue()

    def invocation_metadata(self) -> Pairs:
        """The metadata of the client."""
        return tuple(self._proxy.invocation_metadata())

    def peer(self) -> str:
        """The address of the client, as the proxy sees it."""
        return str(self._proxy.peer())

    def time_remaining(self) -> None:
        """None: the proxy enforces the deadline and cancels the call."""

    async def send_initial_metadata(self, pairs: Pairs) -> None:
        """Sent with every message; proxied_services.py turns it into initial metadata."""
        self._initial = pairs
        self._proxy.set_trailing_metadata(list(pairs))

    async def read(self) -> Any:
        """The client's next message, grpc.aio.EOF after the last."""
        return await anext(self._contents, grpc.aio.EOF)

    async def write(self, message: bytes) -> None:
        """Returns when Ray has taken the message."""
        self.outbox.put_nowait(message)
        await self.outbox.join()

    def set_trailing_metadata(self, pairs: Pairs) -> None:
        """Sent with the end of a stream, or the reply of a unary call."""
        self._proxy.set_trailing_metadata([*self._initial, *pairs])

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Pairs = ()) -> NoReturn:
        """Ends the call with this status."""
        self._proxy.set_code(code)
        self._proxy.set_details(details)
        self._proxy.set_trailing_metadata([*self._initial, *trailing_metadata])
        raise grpc.aio.AbortError


async def answer_unary(handler: Handler, contents: AsyncIterator[bytes], proxy: RayServegRPCContext) -> Reply:
    """The reply. It is empty if the call failed; the status is sent separately."""
    try:
        return Reply(await handler(contents, ProxiedContext(proxy, contents)) or b"")
    except grpc.aio.AbortError:
        return Reply(b"")


async def answer_stream(
    handler: Handler, contents: AsyncIterator[bytes], proxy: RayServegRPCContext
) -> AsyncIterator[Reply]:
    """All messages, then an empty one. Closing the iterator cancels the call."""
    context = ProxiedContext(proxy, contents)
    call = asyncio.ensure_future(handler(contents, context))
    call.add_done_callback(lambda _: context.outbox.put_nowait(None))
    try:
        while (message := await context.outbox.get()) is not None:
            yield Reply(message)
            context.outbox.task_done()
        if not isinstance(failure := call.exception(), grpc.aio.AbortError | None):
            raise failure
        yield Reply(b"")
    finally:
        call.cancel()
        await asyncio.gather(call, return_exceptions=True)
