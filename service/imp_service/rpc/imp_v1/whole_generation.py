"""GenerateUnary's reply, merged from the messages of Generate."""

from __future__ import annotations

from collections.abc import Iterable

from imp_service.pb import inference_pb2, types_pb2


class WholeGeneration:
    """Merges every message of one stream into the reply."""

    def __init__(self, n_sequences: int) -> None:
        self._response = inference_pb2.GenerateUnaryResponse()
        for index in range(n_sequences):
            self._response.sequences.add().output.index = index
        self._texts: list[list[str]] = [[] for _ in range(n_sequences)]

    def add(self, message: inference_pb2.GenerateResponse) -> None:
        """Adds the stream's next message."""
        match message.WhichOneof("event"):
            case "started":
                self._response.started.CopyFrom(message.started)
            case "chunk":
                self._add_chunk(message.chunk)
            case "finished":
                self._finish(message.finished)

    def response(self) -> inference_pb2.GenerateUnaryResponse:
        """The reply, once the stream has ended."""
        for sequence, texts in zip(self._response.sequences, self._texts, strict=True):
            sequence.output.text = "".join(texts)
            calls = _whole_calls(sequence.output.tool_calls)
            del sequence.output.tool_calls[:]
            sequence.output.tool_calls.extend(calls)
        return self._response

    def _add_chunk(self, chunk: inference_pb2.GenerationChunk) -> None:
        output = self._response.sequences[chunk.index].output
        output.token_ids.extend(chunk.token_ids)
        output.logprobs.extend(chunk.logprobs)
        output.candidates.extend(chunk.candidates)
        self._texts[chunk.index].append(chunk.text)
        self._add_channels(chunk.index, chunk)

    def _finish(self, finished: inference_pb2.GenerationFinished) -> None:
        sequence = self._response.sequences[finished.index]
        sequence.reason = finished.reason
        if finished.HasField("match"):
            sequence.match.CopyFrom(finished.match)
        if finished.HasField("position"):
            sequence.position = finished.position
        self._texts[finished.index].append(finished.text)
        self._add_channels(finished.index, finished)
        if finished.HasField("usage"):
            self._response.usage.CopyFrom(finished.usage)
            self._response.timings.CopyFrom(finished.timings)
            self._response.speculation.CopyFrom(finished.speculation)

    def _add_channels(self, index: int, part: inference_pb2.GenerationChunk | inference_pb2.GenerationFinished) -> None:
        output = self._response.sequences[index].output
        output.reasoning += part.reasoning
        output.tool_calls.extend(part.tool_calls)


def _whole_calls(deltas: Iterable[types_pb2.ToolCallDelta]) -> list[types_pb2.ToolCallDelta]:
    """One message for each call."""
    found: dict[int, types_pb2.ToolCallDelta] = {}
    for delta in deltas:
        if delta.index not in found:
            found[delta.index] = types_pb2.ToolCallDelta(index=delta.index, id=delta.id, name=delta.name)
        found[delta.index].arguments_json += delta.arguments_json
    return list(found.values())
