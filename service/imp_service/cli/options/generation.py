"""Options of a generation on a server, and the request that they make."""

from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING, Any

from imp_service.cli.arguments import Once, duration
from imp_service.cli.failure import CommandError
from imp_service.cli.options.sampling import (
    add_constraint_options,
    add_length_option,
    add_sampling_options,
    given_sampling,
    number_names,
    option_of,
    read_constraint,
)

if TYPE_CHECKING:
    from imp_service.pb.inference_pb2 import GenerateRequest


def add_generation_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-m", "--model", metavar="NAME", action=Once, help="the served name of the model (default: the served model)"
    )
    add_length_option(parser, "with --json what the context holds")
    add_sampling_options(parser, "the server's")
    parser.add_argument("--stop", metavar="TEXT", action="append", default=[], help="end before this text; repeatable")
    add_constraint_options(parser)
    parser.add_argument("--verbose", action="store_true", help="after each answer, show its tokens, speed and seed")
    parser.add_argument(
        "--time-limit", metavar="TIME", type=duration, action=Once, help="end after this long, with the text so far"
    )
    parser.add_argument(
        "--fields",
        metavar="JSON",
        action=Once,
        help='further fields of GenerateRequest, e.g. \'{"constraint": {"regex": "[0-9]+"}}\'; options override them',
    )


def request_of(arguments: Namespace) -> "GenerateRequest":
    """A request with everything but the prompt, which --fields may have set."""
    from imp_service.pb.inference_pb2 import GenerateRequest

    request = GenerateRequest()
    if arguments.fields is not None:
        _parse(arguments.fields, request)
    if request.num_sequences > 1 and not arguments.json:
        raise CommandError(
            "USAGE", f"num_sequences: {request.num_sequences} without --json would mix the texts, expected --json too"
        )
    if arguments.model is not None:
        request.model = arguments.model
    for name, value in given_sampling(arguments).items():
        _set(request.sampling, name, value, option_of(name))
    _set(request.stop, "max_tokens", arguments.max_tokens, "--max-tokens")
    _set(request, "max_reasoning_tokens", arguments.max_reasoning_tokens, "--max-reasoning-tokens")
    if arguments.stop:
        request.stop.strings.extend(arguments.stop)
    constraint = read_constraint(arguments)
    if constraint is not None:
        setattr(request.constraint, constraint.kind, constraint.source)
        request.constraint.unbounded_whitespace = constraint.unbounded_whitespace
    if arguments.time_limit is not None:
        request.stop.time_limit.FromMicroseconds(round(arguments.time_limit * 1_000_000))
    return request


def given_options(request: "GenerateRequest", arguments: Namespace) -> dict[str, float]:
    """The numbers in a request, by their names in imp.v1. Values from the command line are as they were typed."""
    found = {}
    for name in number_names():
        message = _message_of(request, name)
        if message.HasField(name):
            typed = getattr(arguments, name)
            found[name] = getattr(message, name) if typed is None else typed
    return found


def set_options(request: "GenerateRequest", options: dict[str, float]) -> None:
    """Gives a request these numbers and no others."""
    for name in number_names():
        message = _message_of(request, name)
        message.ClearField(name)
        _set(message, name, options.get(name), option_of(name))


def _message_of(request: "GenerateRequest", name: str) -> Any:
    return request.stop if name == "max_tokens" else request.sampling


def _set(message: Any, name: str, value: object, option: str) -> None:
    if value is None:
        return
    try:
        setattr(message, name, value)
    except (ValueError, TypeError):  # a value that does not fit in the field's type cannot be sent
        raise CommandError("FIELD_INVALID", f"{option}: {value} is out of range") from None


def _parse(text: str, request: "GenerateRequest") -> None:
    from google.protobuf.json_format import Parse, ParseError

    try:
        # Arguments that are not UTF-8 arrive with surrogates, which the JSON parser accepts.
        Parse(text.encode("utf-8"), request)
    except (ParseError, UnicodeEncodeError) as error:
        raise CommandError("USAGE", f"--fields: {error}") from None
