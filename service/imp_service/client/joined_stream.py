"""One Generate stream over all the calls that it takes: each goes on behind what came."""

from __future__ import annotations

from array import array

from ..pb.inference_pb2 import GenerateRequest, GenerateResponse, GenerationStarted, Origin, ResumedSequence
from .failure import CallFailure
from .lasting_stream import LastingStream
from .patience import Patience, is_refusal, is_soon
from .stream_order import require
from .target import RESUMES, Target


class JoinedStream(LastingStream):
    """Each call asks for what is missing."""

    def __init__(self, request: GenerateRequest, target: Target, patience: Patience, *, is_known: bool = False) -> None:
        """`is_known`: a server has answered there before, so one that is not there is one that comes back."""
        super().__init__(request, patience)
        self._request = request
        self._is_known = is_known
        # A session keeps what was generated, so its generation cannot be run again.
        self.is_of_session = request.WhichOneof("prompt") == "session_id"
        self._repeats = target.resumes
        self._resumes = target.resumes and not self.is_of_session
        self._own_metadata = RESUMES if self._resumes and target.has_several else ()
        given = request.resume.sequences or [ResumedSequence()] * self._order.n_sequences
        self._told = [array("I", each.token_ids) for each in given]
        # What a call that resumes this stream returns; None: the stream cannot be resumed.
        self._origin: Origin | None = None
        # The id that the server chose, or the caller: the calls that go on keep it.
        self._request_id = ""

    @property
    def request(self) -> GenerateRequest:
        """What the next call asks for: all of it, or what is missing."""
        if self._origin is None:
            return self._request
        request = GenerateRequest()
        request.CopyFrom(self._request)
        request.ClearField("resume")
        request.request_id = self._request_id
        request.resume.origin.CopyFrom(self._origin)
        for index, token_ids in enumerate(self._told):
            request.resume.sequences.add(token_ids=token_ids, finished=not self._order.is_open(index))
        return request

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Of the next call."""
        return (*self._own_metadata, *super().metadata)

    @property
    def _n_told(self) -> int:
        return sum(map(len, self._told))

    def _begun(self, started: GenerationStarted, *, is_first: bool) -> None:
        if is_first:
            self._origin = started.origin if self._resumes and started.HasField("origin") else None
            self._request_id = started.request_id
        else:
            require(started.origin == self._origin, "another stream came than the one to go on with")

    def _is_new(self, message: GenerateResponse) -> bool:
        if message.HasField("chunk"):
            self._told[message.chunk.index].extend(message.chunk.token_ids)
        return True

    def _judge(self, failure: CallFailure, *, has_broken: bool) -> tuple[bool, bool]:
        is_refused = is_refusal(failure)
        if self._has_started:
            return (has_broken, is_refused) if self._origin is not None else (False, False)
        # The server has not noticed yet that an earlier call is gone.
        is_in_use = self._patience.first is not None and failure.reason == "REQUEST_ID_IN_USE"
        return self._resumes and has_broken, self._repeats and is_soon(failure) and (is_refused or is_in_use)

    def _is_patient(self, failure: CallFailure) -> bool:
        is_known = self._is_known and (failure.is_unreachable or failure.reason == "LOADING")
        return self._has_started or is_known

    def _begin_again(self, *, has_broken: bool) -> None:
        self._order.begin_again()
