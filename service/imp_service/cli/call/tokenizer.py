"""imp call tokenize and detokenize: text to token ids and back, by the tokenizer of the served model."""

import sys
from argparse import ArgumentParser, Namespace

from imp_service.cli.options.connection import connect


def configure_tokenize(parser: ArgumentParser) -> None:
    parser.add_argument(
        "texts", metavar="TEXT", nargs="+", help="a text; prints one line of ids for each; - reads one from stdin"
    )
    parser.add_argument("--count", action="store_true", help="print the number of tokens instead of their ids")
    parser.add_argument(
        "--no-special",
        action="store_true",
        help="do not add the begin and end tokens of the model",
    )
    parser.add_argument(
        "--parse-special", action="store_true", help="read special tokens written in the text (default: they are text)"
    )
    parser.set_defaults(run_method=_tokenize)


def configure_detokenize(parser: ArgumentParser) -> None:
    parser.add_argument("ids", metavar="ID", nargs="+", type=int, help="token ids of one text, in order")
    parser.add_argument("--special", action="store_true", help="write special tokens too")
    parser.set_defaults(run_method=_detokenize)


def _tokenize(arguments: Namespace) -> int:
    from imp_service.cli.output import write_message
    from imp_service.cli.terminal import read_prompt
    from imp_service.pb.tokenizer_pb2 import TokenizeRequest
    from imp_service.pb.tokenizer_pb2_grpc import TokenizerServiceStub

    request = TokenizeRequest(
        texts=[read_prompt(text) for text in arguments.texts],
        add_special_tokens=not arguments.no_special,
        parse_special_tokens=arguments.parse_special,
        count_only=arguments.count,
    )
    with connect(arguments) as connection:
        response = connection.unary(TokenizerServiceStub(connection.channel).Tokenize, request)
    if arguments.json:
        write_message(response)
        return 0
    for result in response.results:
        sys.stdout.write(f"{result.count if arguments.count else ' '.join(map(str, result.token_ids))}\n")
    return 0


def _detokenize(arguments: Namespace) -> int:
    from imp_service.cli.failure import CommandError
    from imp_service.cli.output import write_message
    from imp_service.cli.terminal import AnswerWriter
    from imp_service.pb.tokenizer_pb2 import DetokenizeRequest
    from imp_service.pb.tokenizer_pb2_grpc import TokenizerServiceStub

    request = DetokenizeRequest(special_tokens=arguments.special)
    try:
        request.token_ids.add().ids.extend(arguments.ids)
    except ValueError:
        raise CommandError("FIELD_INVALID", "ID: out of range, expected 0 to 4294967295") from None
    with connect(arguments) as connection:
        response = connection.unary(TokenizerServiceStub(connection.channel).Detokenize, request)
    if arguments.json:
        write_message(response)
        return 0
    writer = AnswerWriter()
    for text in response.texts:
        writer.write(text)
    writer.end_line()
    return 0
