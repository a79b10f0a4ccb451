"""Four ways to get an output over the wire: Generate, GenerateUnary, Prefill with DecodeStep, and DecodeStream."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from imp_service import GenerationRequest, LanguageModel, SamplingOptions, StepOptions
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, types_pb2
from support.calls.workload import Outcome, Steps, run_by_steps

Stub = inference_pb2_grpc.InferenceServiceStub
# Name of a way -> function that returns the outcome of a request.
Way = Callable[[Stub, LanguageModel, GenerationRequest], Outcome]


def sampling_message(sampling: SamplingOptions) -> types_pb2.SamplingOptions:
    """Returns a message with every field that is set."""
    message = types_pb2.SamplingOptions()
    for name in (field.name for field in fields(sampling)):
        value: Any = getattr(sampling, name)
        if name == "logit_bias":
            message.logit_bias.update(value)
        elif name == "dry" and value is not None:
            for part in ("multiplier", "base", "allowed_length", "window"):
                if getattr(value, part) is not None:
                    setattr(message.dry, part, getattr(value, part))
            message.dry.breakers.extend(value.breakers)
        elif value is not None and name != "dry":
            setattr(message, name, value)
    return message


def request_message(request: GenerationRequest) -> pb.GenerateRequest:
    """Converts a request of the Python API to imp.v1; covers the fields that workload.random_requests sets."""
    assert not isinstance(request.prompt, str)
    stop, constraint = request.stop, request.constraint
    message = pb.GenerateRequest(
        token_ids=types_pb2.TokenIds(ids=list(request.prompt)),  # type: ignore[arg-type]
        sampling=sampling_message(request.sampling),
        stop=types_pb2.StopOptions(
            max_tokens=stop.max_tokens,
            min_tokens=stop.min_tokens,
            strings=stop.strings,
            token_ids=stop.token_ids,
            ignore_eos=stop.ignore_eos,
        ),
        output=types_pb2.OutputOptions(logprobs=request.output.logprobs),
    )
    if constraint is not None and constraint.choices:
        message.constraint.choices.values.extend(constraint.choices)
    elif constraint is not None:
        setattr(message.constraint, constraint.kind.value, constraint.source)
    return message


def by_generate(stub: Stub, model: LanguageModel, request: GenerationRequest) -> Outcome:
    """Runs the request as one stream."""
    metadata = (("imp-priority", str(request.priority)),)
    tokens: list[int] = []
    text, reason = "", ""
    for message in stub.Generate(request_message(request), metadata=metadata):
        kind = message.WhichOneof("event")
        if kind == "chunk":
            tokens += message.chunk.token_ids
            text += message.chunk.text
        elif kind == "finished":
            text += message.finished.text
            reason = reason_of(message.finished.reason)
    return Outcome(tuple(tokens), text, reason)


def by_unary(stub: Stub, model: LanguageModel, request: GenerationRequest) -> Outcome:
    """Runs the request with one reply."""
    reply = stub.GenerateUnary(pb.GenerateUnaryRequest(request=request_message(request)))
    (sequence,) = reply.sequences
    return Outcome(tuple(sequence.output.token_ids), sequence.output.text, reason_of(sequence.reason))


def reason_of(reason: int) -> str:
    """Returns the finish reason by the name in the Python API."""
    name: str = types_pb2.FinishReason.Name(reason)
    return name.removeprefix("FINISH_REASON_").lower()


def step_message(step: StepOptions) -> pb.StepOptions:
    """Returns the step options as a message."""
    return pb.StepOptions(sample=step.sample, allowed_token_mask=step.allowed_token_mask)


class WireSession:
    """A session over the wire for a loop of steps; `call` sends one request and returns its reply."""

    def __init__(self, call: Callable[[pb.DecodeStreamRequest], Any], sampling: SamplingOptions) -> None:
        self._call = call
        self._sampling = sampling
        self._session_id = ""

    def prefill(self, prompt: Sequence[int], step: StepOptions) -> pb.StepOutput:
        """Opens the session."""
        reply = self._call(
            pb.DecodeStreamRequest(
                prefill=pb.PrefillRequest(
                    token_ids=types_pb2.TokenIds(ids=prompt),
                    sampling=sampling_message(self._sampling),
                    step=step_message(step),
                )
            )
        )
        self._session_id = reply.session_id
        return output_of(reply.output)

    def decode_step(self, tokens: Sequence[int], step: StepOptions) -> pb.StepOutput:
        """Runs one step of this session."""
        one = pb.SessionStep(session_id=self._session_id, token_ids=tokens, step=step_message(step))
        reply = self._call(pb.DecodeStreamRequest(step=pb.DecodeStepRequest(steps=[one])))
        (result,) = reply.results
        assert result.session_id == self._session_id and result.WhichOneof("result") == "output", result
        return output_of(result.output)

    def release(self) -> None:
        """Releases the session."""
        release = pb.ReleaseSessionRequest(session_id=self._session_id)
        assert self._call(pb.DecodeStreamRequest(release=release)).released


def output_of(output: pb.StepOutput) -> pb.StepOutput:
    """Returns the output; checks that it contains a token."""
    assert output.HasField("token_id"), output
    return output


def by_calls(stub: Stub, model: LanguageModel, request: GenerationRequest) -> Outcome:
    """Runs the request with Prefill and DecodeStep, each a separate call."""

    def call(message: pb.DecodeStreamRequest) -> Any:
        match message.WhichOneof("request"):
            case "prefill":
                return stub.Prefill(message.prefill)
            case "step":
                return stub.DecodeStep(message.step)
        return stub.ReleaseSession(message.release)

    @contextmanager
    def opened(sampling: SamplingOptions) -> Iterator[Steps]:
        session = WireSession(call, sampling)
        yield session
        session.release()

    return run_by_steps(model, request, opened)


def by_stream(stub: Stub, model: LanguageModel, request: GenerationRequest) -> Outcome:
    """Runs the same requests on a DecodeStream, each after the last reply. The stream's end frees the session."""
    requests: queue.SimpleQueue[pb.DecodeStreamRequest | None] = queue.SimpleQueue()
    replies = stub.DecodeStream(iter(requests.get, None))

    def call(message: pb.DecodeStreamRequest) -> Any:
        requests.put(message)
        reply = next(replies)
        kind = reply.WhichOneof("response")
        assert kind == message.WhichOneof("request"), reply
        return getattr(reply, kind)

    @contextmanager
    def opened(sampling: SamplingOptions) -> Iterator[Steps]:
        yield WireSession(call, sampling)

    outcome = run_by_steps(model, request, opened)
    requests.put(None)
    assert list(replies) == []
    return outcome


WAYS: dict[str, Way] = {"generate": by_generate, "unary": by_unary, "calls": by_calls, "stream": by_stream}
