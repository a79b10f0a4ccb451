"""A call that Ray's proxy took: what servicers ask of a gRPC context, answered by what the proxy sent along.

Ray carries trailing metadata and the details of a status back to the client with a message, and with nothing else. So
each stream ends in a message of no bytes, which no reply of imp.v1 is; proxied_services.py takes it out again. What a
message carries may be what was set after it, for Ray looks when it sends: so nothing that was set is taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import grpc

if TYPE_CHECKING:  # Ray is an extra, and a call needs no more of it than the object that Ray hands over.
    from ray.serve.grpc_util import RayServegRPCContext

Pairs = Sequence[tuple[str, str | bytes]]
Behavior = Callable[[Any, Any], Awaitable[bytes | None]]


class Reply:
    """Bytes in the place of a message: Ray serializes what methods return."""

    def __init__(self, content: bytes) -> None:
        self._content = content

    def SerializeToString(self) -> bytes:  # noqa: N802
        return self._content


class ProxiedContext:
    """The part of grpc.aio.ServicerContext that the path of a call uses. On the loop's thread."""

    def __init__(self, proxy: RayServegRPCContext, contents: AsyncIterator[bytes]) -> None:
        self._proxy = proxy
        self._contents = contents
        self._initial: Pairs = ()
        # One message at a time: the writer waits until Ray has come for the next.
        self.outbox: asyncio.Queue[bytes | None] = asyncio.Queue()

    def invocation_metadata(self) -> Pairs:
        """What the client sent."""
        return tuple(self._proxy.invocation_metadata())

    def peer(self) -> str:
        """The client, as the proxy sees it."""
        return str(self._proxy.peer())

    def time_remaining(self) -> None:
        """The proxy keeps the deadline, and cancels the call when it has passed."""

    async def send_initial_metadata(self, pairs: Pairs) -> None:
        """Goes with every message; proxied_services.py makes it initial."""
        self._initial = pairs
        self._proxy.set_trailing_metadata(list(pairs))

    async def read(self) -> Any:
        """The client's next message, grpc.aio.EOF after the last."""
        return await anext(self._contents, grpc.aio.EOF)

    async def write(self, message: bytes) -> None:
        """Returns when the message is on its way."""
        self.outbox.put_nowait(message)
        await self.outbox.join()

    def set_trailing_metadata(self, pairs: Pairs) -> None:
        """Goes with the end of a stream, and with the reply of a unary call."""
        self._proxy.set_trailing_metadata([*self._initial, *pairs])

    async def abort(self, code: grpc.StatusCode, details: str = "", trailing_metadata: Pairs = ()) -> NoReturn:
        """Ends the call as its status; nothing after it is sent."""
        self._proxy.set_code(code)
        self._proxy.set_details(details)
        self._proxy.set_trailing_metadata([*self._initial, *trailing_metadata])
        raise grpc.aio.AbortError

    def code(self) -> grpc.StatusCode:
        """The status that was set."""
        code: grpc.StatusCode = self._proxy.code()
        return code


async def answer_unary(behavior: Behavior, contents: AsyncIterator[bytes], proxy: RayServegRPCContext) -> Reply:
    """The reply. It is empty if the call failed; the status is sent separately."""
    try:
        return Reply(await behavior(contents, ProxiedContext(proxy, contents)) or b"")
    except grpc.aio.AbortError:
        return Reply(b"")


async def answer_stream(
    behavior: Behavior, contents: AsyncIterator[bytes], proxy: RayServegRPCContext
) -> AsyncIterator[Reply]:
    """Every message, then one of no bytes. Leaving the iterator cancels the call."""
    context = ProxiedContext(proxy, contents)
    call = asyncio.ensure_future(behavior(contents, context))
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
