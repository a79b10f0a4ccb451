"""A gRPC proxy before a server that answers by itself while it has no server, as those of a service mesh do."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE


class AnsweringProxy(grpc.GenericRpcHandler):
    """Relays calls, until a number of messages has come back. Then it has no server for some seconds."""

    def __init__(self, address: str, n_messages: int, seconds: float) -> None:
        self._channel = grpc.insecure_channel(address, options=[("grpc.use_local_subchannel_pool", 1)])
        self._n_left = n_messages
        self._seconds = seconds
        self._lock = threading.Lock()
        self._back_at = 0.0
        # Calls that it has answered by itself.
        self.n_own = 0
        self._server = grpc.server(ThreadPoolExecutor(8), handlers=[self])
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self._server.start()

    def close(self) -> None:
        """Ends every call."""
        self._server.stop(grace=None).wait()
        self._channel.close()

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler:
        """The handler of any method: messages stay bytes."""

        def relay(requests: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
            self._require_server(context)
            call = self._channel.stream_stream(details.method)(requests, metadata=details.invocation_metadata)
            try:
                if head := call.initial_metadata():
                    context.send_initial_metadata(head)
                for message in call:
                    self._count()
                    self._require_server(context)
                    yield message
            except grpc.RpcError as error:
                failed: Any = error
                context.set_trailing_metadata(failed.trailing_metadata())
                context.abort(failed.code(), failed.details())
            finally:
                call.cancel()

        return grpc.stream_stream_rpc_method_handler(relay)

    def _count(self) -> None:
        with self._lock:
            self._n_left -= 1
            if self._n_left == 0:
                self._back_at = time.monotonic() + self._seconds

    def _require_server(self, context: grpc.ServicerContext) -> None:
        if time.monotonic() < self._back_at:
            self.n_own += 1
            context.abort(UNAVAILABLE, "upstream connect error or disconnect/reset before headers")


@contextlib.contextmanager
def answering_proxy(address: str, n_messages: int, seconds: float) -> Iterator[AnsweringProxy]:
    """Runs such a proxy within the block."""
    proxy = AnsweringProxy(address, n_messages, seconds)
    try:
        yield proxy
    finally:
        proxy.close()
