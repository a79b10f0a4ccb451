"""A recorded stream, in a file of `imp call --record`: what was asked for, what decided its tokens, and what came."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imp_service.cli.failure import CommandError

if TYPE_CHECKING:
    from imp_service.pb.inference_pb2 import GenerateRequest, GenerateResponse

FORMAT = 1
# A request of the largest size, in base64.
MOST_BYTES = 2 * 1024**3
# Ends that depend on a clock or a person.
_FROM_OUTSIDE = ("time_limit", "aborted", "cancelled")


@dataclass(slots=True)
class RecordedSequence:
    """One sequence. Without an end, the stream was cut, or ended from outside."""

    token_ids: list[int] = field(default_factory=list)
    end: Mapping[str, object] | None = None


class RecordedSequences:
    """The sequences of a stream, as they come."""

    def __init__(self, n_sequences: int) -> None:
        self.sequences = [RecordedSequence() for _ in range(n_sequences)]
        self.origin: Mapping[str, Any] = {}

    def take(self, message: "GenerateResponse") -> None:
        """Takes the next message of a stream."""
        from imp_service.api.replies import Chunk, Finished
        from imp_service.client.messages.read_replies import read_reply

        if message.HasField("started") and message.started.HasField("origin"):
            from google.protobuf.json_format import MessageToDict

            self.origin = MessageToDict(message.started.origin, preserving_proto_field_name=True)
        reply = read_reply(message)
        if isinstance(reply, Chunk | Finished) and reply.index < len(self.sequences):
            output = self.sequences[reply.index]
            if isinstance(reply, Chunk):
                output.token_ids += reply.token_ids
            elif reply.reason not in _FROM_OUTSIDE:
                output.end = end_of(reply)


def end_of(finished: Any) -> Mapping[str, object]:
    """Why a sequence ended, and at what."""
    found: dict[str, object] = {"reason": finished.reason}
    for name in ("text", "token_id", "eos_token_id"):
        if finished.match is not None and (value := getattr(finished.match, name)) is not None:
            found[name] = value
    return found


@dataclass(frozen=True, slots=True)
class RecordedStream:
    """The content of a file."""

    # A GenerateRequest and an Origin of imp.v1, as JSON.
    request: Mapping[str, Any]
    origin: Mapping[str, Any]
    # The parts of the server's fingerprint; empty if they are not known.
    parts: Mapping[str, str]
    sequences: Sequence[RecordedSequence]

    def to_repeat(self) -> "GenerateRequest":
        """The request that begins the stream again: at the same time, with the same seed."""
        from google.protobuf.json_format import ParseDict, ParseError

        from imp_service.pb.inference_pb2 import GenerateRequest

        request = GenerateRequest()
        try:
            ParseDict(dict(self.request), request)
            ParseDict(dict(self.origin), request.resume.origin)
        except ParseError as error:
            raise _invalid(str(error)) from None
        # The names of a server, and of a call.
        request.ClearField("model")
        request.ClearField("request_id")
        for _ in self.sequences:
            request.resume.sequences.add()
        return request

    def text(self) -> str:
        """The content of its file."""
        sequences = [{"token_ids": each.token_ids, "end": each.end} for each in self.sequences]
        content = {"imp_record": FORMAT, "request": self.request, "origin": self.origin, "fingerprint": self.parts}
        return json.dumps({**content, "sequences": sequences}, ensure_ascii=False, indent=1) + "\n"


def read_record(path: Path) -> RecordedStream:
    """The record in a file. Raises CommandError."""
    with path.open("rb") as file:
        data = file.read(MOST_BYTES + 1)
    if len(data) > MOST_BYTES:
        raise _invalid(f"more than {MOST_BYTES} bytes")
    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise _invalid(f"is no JSON: {error}") from None
    if not isinstance(content, dict) or content.get("imp_record") != FORMAT:
        raise _invalid(f"expected a file of imp call --record, with imp_record = {FORMAT}")
    parts, given = _object(content, "fingerprint"), content.get("sequences")
    if not isinstance(given, list) or not given:
        raise _invalid("sequences: expected a list of one or more")
    sequences = [_output(each, f"sequences[{i}]") for i, each in enumerate(given)]
    names = {name: str(value) for name, value in parts.items()}
    return RecordedStream(_object(content, "request"), _object(content, "origin"), names, sequences)


def _output(given: object, path: str) -> RecordedSequence:
    if not isinstance(given, dict):
        raise _invalid(f"{path}: expected an object")
    token_ids, end = given.get("token_ids"), given.get("end")
    if not isinstance(token_ids, list) or not all(type(token) is int and token >= 0 for token in token_ids):
        raise _invalid(f"{path}.token_ids: expected a list of ids")
    if end is not None and not isinstance(end, dict):
        raise _invalid(f"{path}.end: expected an object or null")
    return RecordedSequence(token_ids, end)


def _object(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = content.get(name)
    if not isinstance(value, dict):
        raise _invalid(f"{name}: expected an object")
    return value


def _invalid(why: str) -> CommandError:
    return CommandError("RECORD_INVALID", f"FILE: {why}")


@dataclass(frozen=True, slots=True)
class Difference:
    """The first place where two streams differ: an id or an end of each."""

    sequence: int
    index: int
    recorded: int | Mapping[str, object]
    found: int | Mapping[str, object]


def difference(recorded: Sequence[RecordedSequence], found: Sequence[RecordedSequence]) -> Difference | None:
    """The first difference, in order of sequences. What follows a cut, of either stream, is not compared."""
    for i, (known, new) in enumerate(zip(recorded, found, strict=True)):
        n_known, n_new = len(known.token_ids), len(new.token_ids)
        for index, (token, other) in enumerate(zip(known.token_ids, new.token_ids, strict=False)):
            if token != other:
                return Difference(i, index, token, other)
        if n_new < n_known:
            if new.end is not None:
                return Difference(i, n_new, known.token_ids[n_new], new.end)
        elif known.end is None:
            continue
        elif n_new > n_known:
            return Difference(i, n_known, known.end, new.token_ids[n_known])
        elif new.end is not None and known.end != new.end:
            return Difference(i, n_known, known.end, new.end)
    return None


def is_incomplete(recorded: Sequence[RecordedSequence], found: Sequence[RecordedSequence]) -> bool:
    """Whether a clock or a person ended the new stream before all that is recorded had come."""
    return any(
        new.end is None and (known.end is not None or len(new.token_ids) < len(known.token_ids))
        for known, new in zip(recorded, found, strict=True)
    )
