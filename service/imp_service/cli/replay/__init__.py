"""imp replay: repeats a recorded stream, and says whether its tokens are the same."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.api.errors import RESUME_MISMATCH
from imp_service.cli.arguments import UsageError
from imp_service.cli.failure import CommandError
from imp_service.cli.options.connection import (
    add_attempts_option,
    add_connection_options,
    add_deadline_option,
    add_target_option,
    connect,
)
from imp_service.cli.options.settings import MODEL_HELP, add_context_option, add_model_option, add_settings_options
from imp_service.cli.replay.record import (
    RecordedSequence,
    RecordedSequences,
    RecordedStream,
    difference,
    is_incomplete,
    read_record,
)

if TYPE_CHECKING:
    from imp_service.client.connection import Connection

EXAMPLES = (
    "imp replay stream.json",
    "imp replay stream.json --target imp.example:50051",
    "imp replay stream.json -m model.gguf --set device.isa=generic",
)
SAME, DIFFERENT, CANNOT_SAY = 0, 1, 2


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what imp call generate --record or imp call chat --record wrote")
    add_model_option(parser, f"run this model here, in place of a server: {MODEL_HELP}")
    add_context_option(parser)
    add_settings_options(parser)
    add_target_option(parser)
    add_connection_options(parser)
    add_attempts_option(parser)
    add_deadline_option(parser)
    parser.set_defaults(prog=parser.prog)


def run(arguments: Namespace) -> int:
    from imp_service.cli.preflight import silence_grpc

    if arguments.model is not None and arguments.target is not None:
        raise UsageError(arguments.prog, "--target: given together with --model, expected one of them")
    silence_grpc()
    record = read_record(Path(arguments.file))
    record.to_repeat()  # refuses what is no request, before a model is loaded
    with _server(arguments) as connection:
        if reasons := _other_parts(connection, record):
            return _cannot_say(reasons)
        try:
            found = _repeat(connection, record)
        except CommandError as error:
            if error.reason != RESUME_MISMATCH:
                raise
            return _cannot_say([error.message])
        differs = difference(record.sequences, found)
        if differs is None and is_incomplete(record.sequences, found):
            return _cannot_say(["a time limit or another person ended the new stream, which was the same until then"])
        if differs is None:
            n_tokens = sum(len(each.token_ids) for each in record.sequences)
            sys.stdout.write(f"the same: {len(found)} sequence{'s' if len(found) > 1 else ''}, {n_tokens} tokens\n")
            return SAME
        recorded, new = (_shown(connection, each) for each in (differs.recorded, differs.found))
    place = f"sequence {differs.sequence}, output {differs.index}"
    sys.stdout.write(f"different: {place}: recorded {recorded}, here {new}\n")
    return DIFFERENT


@contextmanager
def _server(arguments: Namespace) -> "Iterator[Connection]":
    """The server that repeats the stream: the one at the address, or one that is started here for the model."""
    if arguments.model is None:
        with connect(arguments) as connection:
            yield connection
        return
    from imp_service.cli.options.settings import load_model_settings
    from imp_service.cli.preflight import require_threads
    from imp_service.cli.replay.local_server import LocalServer

    with LocalServer() as server:
        config = load_model_settings(arguments, server.settings())
        require_threads(config.settings)
        server.start(config)
        arguments.target = server.address
        with connect(arguments) as connection:
            yield connection


def _other_parts(connection: "Connection", record: RecordedStream) -> list[str]:
    """What decides tokens there in another way."""
    from imp_service.api.resume import different_parts
    from imp_service.pb.model_pb2 import GetServerInfoRequest

    info = connection.unary(connection.models.GetServerInfo, GetServerInfoRequest())
    if info.fingerprint == record.origin.get("server"):
        return []
    here = dict(info.fingerprint_parts)
    names = different_parts(record.parts, here)
    if not record.parts or not names:
        return [f"fingerprint: recorded {record.origin.get('server')}, here {info.fingerprint or 'none'}"]
    return [f"{name}: recorded {record.parts.get(name, 'none')}, here {here.get(name, 'none')}" for name in names]


def _cannot_say(reasons: Sequence[str]) -> int:
    for reason in reasons:
        print(f"imp: cannot say: {reason}", file=sys.stderr)
    return CANNOT_SAY


def _repeat(connection: "Connection", record: RecordedStream) -> Sequence[RecordedSequence]:
    """What comes now. A stream that was cut when it was recorded is read as far as it came."""
    from imp_service.client.failure import CallFailure
    from imp_service.client.stream_order import StreamOrder

    n_sequences = len(record.sequences)
    outputs, order = RecordedSequences(n_sequences), StreamOrder(n_sequences)
    wanted = [len(each.token_ids) if each.end is None else None for each in record.sequences]
    responses = connection.stream(connection.inference.Generate, record.to_repeat())
    try:
        with closing(responses):
            for response in responses:
                order.check(response)
                outputs.take(response)
                if all(
                    each.end is not None or (most is not None and len(each.token_ids) >= most)
                    for each, most in zip(outputs.sequences, wanted, strict=True)
                ):
                    break
    except CallFailure as failure:
        if failure.reason != RESUME_MISMATCH:
            raise
        words = {"server": "it is another server than a moment ago", "request": "the request has another meaning there"}
        differs = failure.metadata.get("differs", "")
        raise CommandError(RESUME_MISMATCH, f"{differs}: {words.get(differs, failure.text)}") from None
    return outputs.sequences


def _shown(connection: "Connection", each: "int | Mapping[str, object]") -> str:
    """An id with its text, or an end."""
    if not isinstance(each, int):
        match = next((f" at {value!r}" for name, value in each.items() if name != "reason"), "")
        return f"the end ({each.get('reason')}{match})"
    from imp_service.pb.tokenizer_pb2 import DetokenizeRequest

    request = DetokenizeRequest(special_tokens=True)
    request.token_ids.add().ids.append(each)
    [text] = connection.unary(connection.tokenizer.Detokenize, request).texts
    return f"{each} {text!r}"
