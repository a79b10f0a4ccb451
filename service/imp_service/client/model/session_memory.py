"""What a client keeps of a session, so that another server can go on with it: 4 bytes a token."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...pb import inference_pb2 as pb
from ...pb import types_pb2


@dataclass(slots=True)
class SessionMemory:
    """The state of a session on its server. Each method records a call that the server has made."""

    # Where it began: a server with another origin would go on with other tokens.
    origin: pb.Origin
    # The sampler in force.
    sampling: types_pb2.SamplingOptions
    # The tokens held, and how many of them there are at output index 0.
    held: array[int] = field(default_factory=lambda: array("I"))
    base: int = 0
    # How many tokens are held where the text of the outputs begins.
    text_from: int = 0
    # The pending token, if the server has it; the mask with which it was drawn, or that a generation drew it.
    pending: int | None = None
    mask: bytes = b""
    is_generated: bool = False

    @classmethod
    def begun(cls, request: pb.PrefillRequest, reply: pb.PrefillResponse) -> SessionMemory | None:
        """That of a session that the request has opened; None if no other server can go on with it."""
        return cls(reply.origin, request.sampling) if reply.HasField("origin") else None

    def copy(self) -> SessionMemory:
        """That of a fork that shares all."""
        return replace(self, held=self.held[:])

    def prefilled(self, request: pb.PrefillRequest, reply: pb.PrefillResponse) -> bool:
        """A prefill. Returns whether the tokens that the session holds are known."""
        are_given = request.WhichOneof("input") == "token_ids"
        self.held.extend(request.token_ids.ids if are_given else reply.prompt_token_ids)
        if request.HasField("sampling"):
            self.sampling = request.sampling
        self.base = reply.base
        resumed = request.resume
        self.text_from = resumed.text_from if resumed.HasField("text_from") else reply.output.position
        self._drawn(reply.output, request.step)
        return not reply.media and len(self.held) == reply.output.position

    def stepped(self, step: pb.SessionStep, output: pb.StepOutput) -> bool:
        """A step. Returns whether the tokens that the session holds are known."""
        pending = () if self.pending is None else (self.pending,)
        self.held.extend(step.token_ids or pending)
        if step.HasField("sampling"):
            self.sampling, self.base = step.sampling, output.position
        self._drawn(output, step.step)
        return len(self.held) == output.position

    def generated(
        self, sampling: types_pb2.SamplingOptions | None, n_evaluated: int, outputs: Sequence[int], position: int
    ) -> None:
        """A generation that began with the pending token, if n_evaluated is 1, and then held `position` tokens.

        `sampling`: its own sampler.
        """
        if sampling is not None:
            self.sampling, self.base = sampling, len(self.held) + n_evaluated
        pending = () if self.pending is None else (self.pending,)
        self.held.extend([*pending[:n_evaluated], *outputs])
        has_pending = len(self.held) == position + 1
        self.pending = self.held[position] if has_pending else None
        self.mask, self.is_generated = b"", True
        del self.held[position:]
        self.base = min(self.base, position)
        self.text_from = position + has_pending

    def truncated(self, position: int) -> None:
        """A truncation."""
        if position < len(self.held):
            del self.held[position:]
            self.base, self.text_from = min(self.base, position), min(self.text_from, position)
            self.pending = None

    def lost_pending(self) -> None:
        """The server has dropped the pending token."""
        self.pending = None
        self.text_from = min(self.text_from, len(self.held))

    def put_state(self, request: pb.PrefillRequest) -> None:
        """Makes a request open the session again as it was."""
        request.token_ids.ids.extend(self.held)
        request.base = self.base
        request.step.sample = self.pending is not None
        request.step.allowed_token_mask = self.mask if self.pending is not None else b""
        request.resume.text_from = self.text_from
        if self.pending is not None:
            request.resume.token_id = self.pending
            request.resume.taken = self.is_generated

    def put_origin(self, request: pb.PrefillRequest) -> None:
        """Makes a request that opens the session again name where it began."""
        request.resume.origin.CopyFrom(self.origin)

    def is_met(self, reply: pb.PrefillResponse) -> bool:
        """Whether a server has opened the session again as it was."""
        begun, output = reply.origin, reply.output
        token = output.token_id if output.HasField("token_id") else None
        return (
            (begun.server, begun.request) == (self.origin.server, self.origin.request)
            and output.position == len(self.held)
            and token == self.pending
        )

    def _drawn(self, output: pb.StepOutput, options: pb.StepOptions) -> None:
        self.pending = output.token_id if output.HasField("token_id") else None
        self.mask, self.is_generated = options.allowed_token_mask, False
