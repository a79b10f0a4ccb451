"""imp call decide: the probability of each label as the answer to a question, from a server."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once
from imp_service.cli.call.images import add_parts, media_of
from imp_service.cli.options.connection import connect
from imp_service.cli.options.decision import add_decision_options, check_decision_options
from imp_service.cli.options.images import add_image_option, read_images

if TYPE_CHECKING:
    from imp_service.pb.inference_pb2 import DecideRequest


def configure_decide(parser: ArgumentParser) -> None:
    parser.add_argument(
        "words", metavar="QUESTION", nargs="+", help="the question, in one or several words; - reads it from stdin"
    )
    add_decision_options(parser)
    add_image_option(parser)
    parser.add_argument(
        "-m", "--model", metavar="NAME", action=Once, help="the served name of the model (default: the served model)"
    )
    parser.set_defaults(run_method=_decide)


def _decide(arguments: Namespace) -> int:
    from imp_service.cli.decision_table import write_decision
    from imp_service.cli.output import write_message
    from imp_service.cli.terminal import join_prompt, read_prompt
    from imp_service.client.messages.read_replies import read_decision
    from imp_service.pb.inference_pb2 import DecideRequest, IntegerRange
    from imp_service.pb.inference_pb2_grpc import InferenceServiceStub

    check_decision_options(arguments)
    request = DecideRequest(model=arguments.model or "", labels=arguments.labels)
    if arguments.numbers is not None:
        request.range.CopyFrom(IntegerRange(**dict(zip(("low", "high", "step"), arguments.numbers, strict=False))))
    with connect(arguments) as connection:
        most = media_of(connection).request_bytes if arguments.images else 0
        images = read_images(arguments.images, arguments.words, most)
        _set_prompt(request, images, read_prompt(join_prompt(arguments.words)), arguments)
        response = connection.unary(InferenceServiceStub(connection.channel).Decide, request)
    if arguments.json:
        write_message(response)
    else:
        write_decision(read_decision(response))
    return 0


def _set_prompt(request: "DecideRequest", images: Sequence[bytes], text: str, arguments: Namespace) -> None:
    if not arguments.raw:
        if arguments.system is not None:
            request.chat.messages.add(role="system", content=arguments.system)
        message = request.chat.messages.add(role="user")
        if images:
            add_parts(message.parts, images, text)
        else:
            message.content = text
    elif images:
        add_parts(request.parts.parts, images, text)
    else:
        request.text = text
