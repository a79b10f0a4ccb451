"""The ways in which a request ends: complete, cancelled, past its deadline, disconnected, unread, aborted."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import grpc

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from imp_service.pb.inference_pb2_grpc import InferenceServiceStub
from support.calls.known_outputs import Known
from support.calls.status_checker import CLIENTS_OWN
from support.calls.status_details import read_details

# Opens a new connection with these channel options; every call on it is checked.
Connect = Callable[..., AbstractContextManager[grpc.Channel]]
# The tenant of the clients that stop reading.
SLOW_TENANT = "slow"
# The smallest receive window of HTTP/2: the server notices at once when a reader stops.
SMALL_WINDOW = (("grpc.http2.lookahead_bytes", 1), ("grpc.http2.bdp_probe", 0))


@dataclass(frozen=True)
class Ending:
    """How a request ended, as its client saw it."""

    way: str
    code: str
    reason: str  # of the error table; empty where the status has none
    finish: str  # the finish reason of an OK
    n_tokens: int
    is_right: bool  # whether every token that arrived is the known one

    @property
    def status(self) -> str:
        """The code and the reason, or the finish reason."""
        return " ".join(word for word in (self.code, self.reason or self.finish) if word)


class Reader:
    """Reads part of a stream and compares its tokens with the known ones."""

    def __init__(self, way: str, known: Known, stream: Any) -> None:
        self.way = way
        self.known = known
        self.stream = stream
        self.tokens: list[int] = []
        self._finish = ""
        self._messages: Iterator[pb.GenerateResponse] = iter(stream)

    def read(self, n_tokens: int | None = None) -> Ending | None:
        """Reads until there are `n_tokens` tokens; returns the ending if the stream ends first."""
        try:
            while n_tokens is None or len(self.tokens) < n_tokens:
                message = next(self._messages)
                self.tokens += message.chunk.token_ids
                if message.WhichOneof("event") == "finished":
                    self._finish = types_pb2.FinishReason.Name(message.finished.reason)
        except StopIteration:
            is_whole = self._finish == "FINISH_REASON_ABORTED" or len(self.tokens) == len(self.known.token_ids)
            return self._ended("OK", "", is_whole)
        except grpc.RpcError as error:
            return self._ended(*status_of(error))
        return None

    def _ended(self, code: str, reason: str, is_whole: bool = True) -> Ending:
        is_right = is_whole and self.known.begins_with(self.tokens)
        # A deadline may pass between the last message and the status.
        finish = self._finish if code == "OK" else ""
        return Ending(self.way, code, reason, finish, len(self.tokens), is_right)


def status_of(error: grpc.RpcError) -> tuple[str, str]:
    """Returns the code, and the server's reason if it arrived before the client ended the call."""
    code = error.code().name
    return code, "" if code in CLIENTS_OWN else read_details(error.trailing_metadata() or ()).reason


class Endings:
    """Makes requests end in each way, for one client.

    `abort` ends a request by its id, `drain` all running requests; without them, these ways are left out.
    """

    def __init__(
        self,
        connect: Connect,
        rng: random.Random,
        *,
        abort: Callable[[str], None] | None = None,
        drain: Callable[[], None] | None = None,
    ) -> None:
        self._connect = connect
        self._rng = rng
        self._abort = abort
        self._drain = drain

    @property
    def ways(self) -> dict[str, Callable[[Known], Ending]]:
        """Returns the ways by name."""
        ways = {
            "finished": self.finished,
            "unary": self.unary,
            "cancelled": self.cancelled,
            "deadline": self.deadline,
            "dropped": self.dropped,
            "slow": self.slow,
        }
        if self._abort is not None:
            ways["aborted"] = self.aborted
        if self._drain is not None:
            ways["drained"] = self.drained
        return ways

    def _some(self, known: Known) -> int:
        return self._rng.randint(0, len(known.token_ids))

    def finished(self, known: Known) -> Ending:
        """Reads a stream to its end."""
        with self._connect() as channel:
            ending = Reader("finished", known, InferenceServiceStub(channel).Generate(known.request)).read()
        assert isinstance(ending, Ending)
        return ending

    def unary(self, known: Known) -> Ending:
        """Gets the output in one reply."""
        with self._connect() as channel:
            try:
                reply = InferenceServiceStub(channel).GenerateUnary(pb.GenerateUnaryRequest(request=known.request))
            except grpc.RpcError as error:
                return Ending("unary", *status_of(error), "", 0, True)
        (sequence,) = reply.sequences
        found = list(sequence.output.token_ids)
        finish = types_pb2.FinishReason.Name(sequence.reason)
        return Ending("unary", "OK", "", finish, len(found), found == list(known.token_ids))

    def cancelled(self, known: Known) -> Ending:
        """Cancels a stream after some tokens."""
        with self._connect() as channel:
            reader = Reader("cancelled", known, InferenceServiceStub(channel).Generate(known.request))
            ending = reader.read(self._some(known))
            reader.stream.cancel()
            return ending or self._rest(reader)

    def deadline(self, known: Known) -> Ending:
        """Lets a request exceed its client's deadline, on arrival or later."""
        with self._connect() as channel:
            seconds = self._rng.choice((0.001, 0.01, 0.03, 0.1))
            stream = InferenceServiceStub(channel).Generate(known.request, timeout=seconds)
            return self._rest(Reader("deadline", known, stream))

    def dropped(self, known: Known) -> Ending:
        """Closes the connection after some tokens."""
        with self._connect() as channel:
            reader = Reader("dropped", known, InferenceServiceStub(channel).Generate(known.request))
            ending = reader.read(self._some(known))
        return ending or self._rest(reader)

    def slow(self, known: Known) -> Ending:
        """Stops reading for a while after the first token."""
        with self._connect(*SMALL_WINDOW) as channel:
            stub = InferenceServiceStub(channel)
            stream = stub.Generate(known.request, metadata=(("imp-tenant", SLOW_TENANT),))
            reader = Reader("slow", known, stream)
            ending = reader.read(1)
            ended = threading.Event()
            reader.stream.add_done_callback(lambda _: ended.set())
            ended.wait(0.5)
            return ending or self._rest(reader)

    def aborted(self, known: Known) -> Ending:
        """Aborts a request as the operator does, after some tokens."""
        request = pb.GenerateRequest()
        request.CopyFrom(known.request)
        request.request_id = f"abort-{self._rng.getrandbits(64):x}"
        with self._connect() as channel:
            reader = Reader("aborted", known, InferenceServiceStub(channel).Generate(request))
            ending = reader.read(self._some(known) // 2)
            if ending is None and self._abort is not None:
                self._abort(request.request_id)
            return ending or self._rest(reader)

    def drained(self, known: Known) -> Ending:
        """Drains the whole server after some tokens."""
        with self._connect() as channel:
            reader = Reader("drained", known, InferenceServiceStub(channel).Generate(known.request))
            ending = reader.read(self._some(known) // 2)
            if self._drain is not None:
                self._drain()
            return ending or self._rest(reader)

    @staticmethod
    def _rest(reader: Reader) -> Ending:
        ending = reader.read()
        assert isinstance(ending, Ending)
        return ending
