"""The state of a session on a server, as its client knows it. It uses no thread and no connection."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from ...api.errors import InvalidArgument, StateError, error_of, invalid
from ...api.options import (
    DEFAULT_STEP,
    CacheOptions,
    GenerationRequest,
    Prompt,
    SamplingOptions,
    StepOptions,
    with_seed,
)
from ...pb import inference_pb2 as pb
from ...pb import types_pb2
from ..failure import CallFailure
from ..messages.fields import MessageWriter
from ..messages.write_requests import Metadata, write_generation, write_prompt
from .reception import Reception
from .session_memory import SessionMemory


@dataclass(frozen=True, slots=True)
class StepRequest:
    """A step that a caller requests."""

    step: StepOptions
    sampling: SamplingOptions | None = None
    position: int | None = None


@dataclass(slots=True)
class SessionState:
    """One session. The first call opens it on the server, under a name that the client chose, so it can be repeated."""

    sampling: SamplingOptions  # of the call that opens it; with a seed
    cache: CacheOptions
    model: str = ""
    ttl: float | None = None  # seconds
    metadata: Metadata = ()
    name: str = field(default_factory=lambda: uuid.uuid4().hex)
    # A call that may have opened it was made.
    may_be_open: bool = False
    is_open: bool = False
    held: int = 0
    seed: int = 0
    # The token that was sampled last and not yet evaluated, if the client knows it.
    pending: int | None = None
    # The server may have dropped the pending token; a step that needs the token sends it.
    is_pending_lost: bool = False
    # The last generation, until settled() reports the position that it reached.
    running: Reception | None = None
    # The sampler that it set.
    running_sampling: types_pb2.SamplingOptions | None = None
    # If the server loses the session, another one goes on with it,
    resumes: bool = False
    # as long as this is known.
    memory: SessionMemory | None = None

    def __post_init__(self) -> None:
        self.seed = self.sampling.seed or 0

    @property
    def position(self) -> int:
        """How many tokens it holds."""
        running = self.running
        if running is None:
            return self.held
        if running.position is not None:
            return running.position
        # The number of read tokens, without the last one, which is pending.
        return self.held + (running.n_prompt_tokens + running.n_tokens - 1 if running.n_tokens else 0)

    # A generation.

    def generation(self, request: GenerationRequest) -> pb.GenerateRequest:
        """Generates after the held tokens. Without a sampling option it keeps the sampler."""
        if request.prompt:
            raise invalid("prompt", "given, expected none: the session holds it")
        self.require_tokens()
        if request.sampling != SamplingOptions():
            request = replace(request, sampling=with_seed(request.sampling))
        return write_generation(request, self.model, self.name)

    def generating(self, message: pb.GenerateRequest, reception: Reception) -> None:
        """Records that the call of a generation begins."""
        self.running = reception
        self.running_sampling = message.sampling if message.HasField("sampling") else None
        if self.running_sampling is not None:
            self.seed = self.running_sampling.seed

    def settling(self) -> pb.TruncateSessionRequest | None:
        """The call that cuts the session to the read tokens of a generation that was left; None: none is needed."""
        running = self.running
        if running is None or (running.position is None and not running.is_left):
            return None
        if running.position is None:
            return pb.TruncateSessionRequest(session_id=self.name, position=self.position)
        self._settled(running, is_lost=False)
        return None

    def settled(self) -> None:
        """Records that the call of settling() was made."""
        if self.running is not None:
            self._settled(self.running, is_lost=True)

    def _settled(self, running: Reception, *, is_lost: bool) -> None:
        position, memory = self.position, self.memory
        if memory is not None and running.started is not None:
            memory.generated(self.running_sampling, running.n_prompt_tokens, running.token_ids, position)
        if memory is not None and is_lost:
            memory.lost_pending()
        if running.n_tokens:
            all_tokens = self.held + running.n_prompt_tokens + running.n_tokens
            self.pending = running.last_token if position == all_tokens - 1 else None
        self.held, self.running = position, None
        self.is_pending_lost = is_lost and self.pending is not None

    def evaluating_pending(self) -> pb.SessionStep | None:
        """The step that a generation needs first if the server has dropped the pending token."""
        if not self.is_pending_lost:
            return None
        return self.step((), StepRequest(StepOptions(sample=False)))

    # Steps.

    def prefill(self, prompt: Prompt, asked: StepRequest, base: int | None) -> pb.PrefillRequest:
        """Evaluates a prompt after what is held."""
        message, writer = pb.PrefillRequest(session_id=self.name, model=self.model), MessageWriter()
        write_prompt(writer, message, prompt)
        writer.put(message, "step", asked.step, "step")
        if base is not None:
            writer.put(message, "base", base, "base")
        message.resumable = self.resumes
        # An empty session may be opened again.
        if not self.is_open or (self.memory is not None and not self.held):
            self._put_opening(writer, message, asked)
        else:
            self._put_position(writer, message, asked.position)
            if asked.sampling is not None:
                writer.put(message, "sampling", with_seed(asked.sampling), "sampling")
        writer.finish()
        self.may_be_open = True
        return message

    def first_step(self, tokens: Sequence[int], asked: StepRequest) -> pb.PrefillRequest:
        """A step of a session that the server does not have: a prefill, as that alone opens one."""
        if not len(tokens):
            self.require_tokens()
        message = self.prefill(tokens, asked, base=None)
        if self.memory is not None:  # a step of it neither begins its draws anew nor its text
            message.base = message.resume.text_from = 0
        return message

    def step(self, tokens: Sequence[int], asked: StepRequest) -> pb.SessionStep:
        """Evaluates tokens, or the pending one."""
        message, writer = pb.SessionStep(session_id=self.name), MessageWriter()
        if not len(tokens) and self.is_pending_lost and self.pending is not None:
            tokens = (self.pending,)
        writer.put(message, "token_ids", tokens, "token_ids")
        writer.put(message, "step", asked.step, "step")
        self._put_position(writer, message, asked.position)
        if asked.sampling is not None:
            writer.put(message, "sampling", with_seed(asked.sampling), "sampling")
        writer.finish()
        return message

    def prefilled(self, request: pb.PrefillRequest, reply: pb.PrefillResponse) -> None:
        """The server has made a prefill."""
        if self.resumes and not self.held and self.memory is None:
            self.memory = SessionMemory.begun(request, reply)
        if self.memory is not None and not self.memory.prefilled(request, reply):
            self.memory = None
        self._extended(reply.output, request.sampling)

    def stepped(self, step: pb.SessionStep, output: pb.StepOutput) -> None:
        """The server has made a step."""
        if self.memory is not None and not self.memory.stepped(step, output):
            self.memory = None
        self._extended(output, step.sampling)

    def _extended(self, output: pb.StepOutput, sampling: types_pb2.SamplingOptions) -> None:
        self.is_open = True
        self.held, self.is_pending_lost = output.position, False
        self.pending = output.token_id if output.HasField("token_id") else None
        if sampling.HasField("seed"):
            self.seed = sampling.seed

    # Opening it again.

    def reopening(self) -> pb.PrefillRequest | None:
        """The call that opens it again, under another name; None if it is empty, so that its next step does.

        The old name may be that of a session that this client cannot reach now.
        """
        assert self.memory is not None  # narrows
        self.rename()
        if not self.held:
            self.is_open = False
            return None
        message, writer = pb.PrefillRequest(session_id=self.name, model=self.model), MessageWriter()
        message.resumable = True
        self._put_opening(writer, message, StepRequest(DEFAULT_STEP))
        self.memory.put_state(message)
        writer.finish()
        return message

    def is_met(self, reply: pb.PrefillResponse) -> bool:
        """Whether the server has opened it again as it was."""
        return self.memory is not None and self.memory.is_met(reply)

    def rename(self) -> None:
        """Gives it a name that no server knows."""
        self.name = uuid.uuid4().hex

    def failed(self, failure: CallFailure) -> None:
        """A call has failed. One that names another position than the session's has what it holds."""
        if failure.reason == "POSITION_MISMATCH" and failure.metadata.get("held", "").isdecimal():
            held = int(failure.metadata["held"])
            if held != self.held:
                self.is_open, self.memory = True, None
                self.held, self.pending, self.is_pending_lost = held, None, False

    # Forks and truncations.

    def fork(self, position: int | None) -> tuple[SessionState, pb.ForkSessionRequest]:
        """A copy that shares the first tokens, or all and the pending one; and the call that makes it."""
        twin = SessionState(
            self.sampling,
            self.cache,
            self.model,
            self.ttl,
            self.metadata,
            may_be_open=self.may_be_open,
            is_open=self.is_open,
            resumes=self.resumes,
            memory=None if self.memory is None else self.memory.copy(),
        )
        twin.seed, twin.held = self.seed, self.position if position is None else position
        if position is None:
            twin.pending, twin.is_pending_lost = self.pending, self.is_pending_lost
        message, writer = pb.ForkSessionRequest(session_id=self.name, new_session_id=twin.name), MessageWriter()
        if position is not None:
            writer.put(message, "position", position, "position")
        writer.finish()
        if twin.memory is not None and position is not None:
            twin.memory.truncated(position)
        return twin, message

    def truncation(self, position: int) -> pb.TruncateSessionRequest:
        """Drops what follows the first tokens."""
        message, writer = pb.TruncateSessionRequest(session_id=self.name), MessageWriter()
        writer.put(message, "position", position, "position")
        writer.finish()
        return message

    def truncated(self, position: int) -> None:
        """Records that the call has cut the session to `position` tokens."""
        if self.memory is not None:
            self.memory.truncated(position)
        if position != self.held:
            self.held, self.pending, self.is_pending_lost = position, None, False

    def require_empty_end(self, position: int) -> None:
        """Raises POSITION_BEYOND_END unless `position` is 0. For a session that the server does not have yet."""
        if position:
            raise error_of(
                InvalidArgument,
                "POSITION_BEYOND_END",
                f"position {position} is beyond the 0 tokens held",
                {"position": str(position), "held": "0"},
            )

    def require_tokens(self) -> None:
        """Raises NO_PENDING_TOKEN if the session is not open: it has no token to continue from."""
        if not self.is_open:
            words = "the request has no tokens and none is pending"
            raise error_of(StateError, "NO_PENDING_TOKEN", words, {"held": "0"})

    def _put_opening(self, writer: MessageWriter, message: pb.PrefillRequest, asked: StepRequest) -> None:
        """Writes the fields that open a session. Position 0 makes the request safe to repeat."""
        if asked.position:
            words = f"position {asked.position} was expected, the session holds 0"
            raise error_of(StateError, "POSITION_MISMATCH", words, {"expected": str(asked.position), "held": "0"})
        message.position = 0
        if asked.sampling is None and self.memory is not None:
            message.sampling.CopyFrom(self.memory.sampling)
        else:
            sampling = self.sampling if asked.sampling is None else with_seed(asked.sampling)
            writer.put(message, "sampling", sampling, "sampling")
        if self.memory is not None:
            self.memory.put_origin(message)
        writer.put(message, "cache", self.cache, "cache")
        if self.ttl is not None:
            writer.put(message, "ttl", self.ttl, "ttl")

    def _put_position(
        self, writer: MessageWriter, message: pb.PrefillRequest | pb.SessionStep, position: int | None
    ) -> None:
        """Writes the caller's position, else the client's own, so that a call that gRPC repeats is not evaluated twice.

        A prefill does not get 0: the server would then open the session again if it had lost it.
        """
        if position is not None:
            writer.put(message, "position", position, "position")
        elif self.held or isinstance(message, pb.SessionStep):
            message.position = self.held
