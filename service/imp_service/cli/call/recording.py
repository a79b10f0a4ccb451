"""imp call --record: writes what was asked for and what came into a file, for imp replay."""

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self

from imp_service.cli.arguments import Once
from imp_service.cli.atomic_file import require_regular, write_atomically
from imp_service.cli.failure import CommandError

if TYPE_CHECKING:
    from imp_service.client.connection import Connection
    from imp_service.pb.inference_pb2 import GenerateRequest, GenerateResponse

# Prompts are for nobody else.
MODE = 0o600


def add_record_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--record",
        metavar="FILE",
        action=Once,
        help="write the request and the tokens that come to FILE, for imp replay; only you can read it",
    )


def recording_of(arguments: Namespace, connection: "Connection", request: "GenerateRequest") -> "Recording | None":
    """What --record asks for. Raises CommandError if the file cannot be written."""
    if arguments.record is None:
        return None
    if request.HasField("resume"):
        raise CommandError("USAGE", "--record: given with `resume` in --fields, expected a stream from its beginning")
    path = Path(arguments.record)
    try:
        require_regular(path)
    except OSError as error:
        raise _cannot_create(path, error) from None
    return Recording(path, connection, request)


class Recording:
    """One stream. The file is written at the end of a `with` block, also with a part of the stream if it breaks."""

    def __init__(self, path: Path, connection: "Connection", request: "GenerateRequest") -> None:
        from imp_service.cli.replay.record import RecordedSequences

        self._path = path
        self._connection = connection
        self._request = request
        self._outputs = RecordedSequences(max(1, request.num_sequences))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        with suppress(*(() if kind is None else (Exception,))):  # the first error counts
            self._write()

    def watch(self, responses: "Iterator[GenerateResponse]") -> "Iterator[GenerateResponse]":
        """The same messages."""
        for response in responses:
            self._outputs.take(response)
            yield response

    def _write(self) -> None:
        from google.protobuf.json_format import MessageToDict

        from imp_service.cli.replay.record import RecordedStream

        origin = self._outputs.origin
        if not origin:
            raise CommandError(
                "NOT_SUPPORTED_BY_MODEL", "--record: the server says of this stream that it cannot repeat it"
            )
        request = MessageToDict(self._request, preserving_proto_field_name=True)
        record = RecordedStream(request, origin, self._parts(), self._outputs.sequences)
        try:
            write_atomically(self._path, record.text(), mode=MODE)
        except OSError as error:
            raise _cannot_create(self._path, error) from None

    def _parts(self) -> dict[str, str]:
        """The parts of the fingerprint, if the same server answers again."""
        from imp_service.client.failure import CallFailure
        from imp_service.pb.model_pb2 import GetServerInfoRequest

        try:
            info = self._connection.unary(self._connection.models.GetServerInfo, GetServerInfoRequest())
        except CallFailure:
            return {}
        return (
            dict(sorted(info.fingerprint_parts.items())) if info.fingerprint == self._outputs.origin["server"] else {}
        )


def _cannot_create(path: Path, error: OSError) -> CommandError:
    return CommandError("CANNOT_CREATE", f"--record: {path}: {error.strerror}")
