"""One generation of a session over all its calls: it is made again by the same session, and what came is left out."""

from __future__ import annotations

from array import array

from ..pb.inference_pb2 import GenerateRequest, GenerateResponse, GenerationStarted
from .failure import CallFailure
from .lasting_stream import LastingStream
from .patience import Patience, is_refusal, is_soon
from .stream_order import StreamOrder, require

# Reasons of a server that does not have the session: the client chose its name, which shows no server.
LOST = ("SESSION_NOT_FOUND", "SESSION_LOST")


class RepeatedStream(LastingStream):
    """Where `needs_session` holds after a failure, the session is to be opened again as it was before the generation.

    renamed() is told its name then. Its server evaluates what came again; a token that differs ends the stream.
    """

    is_of_session = True

    def __init__(self, request: GenerateRequest, patience: Patience) -> None:
        super().__init__(request, patience)
        self._request = request
        self.needs_session = False
        self._told = array("I")
        # Tokens of this call that had come before.
        self._n_again = 0
        # Whether something came in this call.
        self._is_begun = False

    @property
    def request(self) -> GenerateRequest:
        """What each call asks for."""
        return self._request

    def renamed(self, name: str) -> None:
        """The session is open under this name, as it was."""
        request = GenerateRequest()
        request.CopyFrom(self._request)
        request.session_id = name
        # So that what came is told apart from what is new, whatever came together.
        request.output.max_chunk_tokens = 1
        request.output.ClearField("max_chunk_delay")
        self._request, self.needs_session = request, False

    @property
    def _n_told(self) -> int:
        return len(self._told)

    def _begun(self, started: GenerationStarted, *, is_first: bool) -> None:
        self._is_begun = True

    def _is_new(self, message: GenerateResponse) -> bool:
        first, n_told = self._n_again, len(self._told)
        if message.HasField("finished"):
            require(first == n_told, "a session ended before the tokens that had come")
        ids = message.chunk.token_ids
        self._n_again += len(ids)
        if first == n_told:
            self._told.extend(ids)
            return True
        require(self._told[first : self._n_again].tolist() == list(ids), f"token {first} is another one than before")
        return not message.HasField("chunk")

    def _judge(self, failure: CallFailure, *, has_broken: bool) -> tuple[bool, bool]:
        is_lost = failure.reason in LOST and not self._is_begun
        return has_broken or is_lost, is_refusal(failure) and (self._has_started or is_soon(failure))

    def _is_patient(self, failure: CallFailure) -> bool:
        return failure.code == "UNAVAILABLE" or self._has_started

    def _begin_again(self, *, has_broken: bool) -> None:
        self.needs_session = has_broken or self._is_begun
        self._is_begun, self._n_again = False, 0
        self._order = StreamOrder.of(self._request)
