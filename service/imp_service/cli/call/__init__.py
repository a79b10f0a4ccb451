"""imp call: calls any imp.v1 server; the reply goes to stdout, everything else to stderr."""

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from typing import NamedTuple

from imp_service.cli.call import chat as call_chat
from imp_service.cli.call import decide as call_decide
from imp_service.cli.call import generate as call_generate
from imp_service.cli.call import model as call_model
from imp_service.cli.call import tokenizer as call_tokenizer
from imp_service.cli.call import vectors as call_vectors
from imp_service.cli.commands import CALL_METHODS
from imp_service.cli.options.connection import (
    add_attempts_option,
    add_connection_options,
    add_deadline_option,
    add_target_option,
)


class _Method(NamedTuple):
    text: str
    add_own_options: Callable[[ArgumentParser], None]
    examples: tuple[str, ...]


_METHODS = {
    "chat": _Method(
        "answer a message; without one, start a conversation (the default method)",
        call_chat.configure_chat,
        ('imp call "What is imp?"', 'imp call chat --system "Be brief." --drop-oldest'),
    ),
    "generate": _Method(
        "continue a text",
        call_generate.configure_generate,
        (
            'imp call generate "Once upon a time" -n 40 --temperature 0',
            """imp call generate --regex "[0-9]+" "3 plus 4 is " """.rstrip(),
            """imp call generate --fields '{"constraint": {"regex": "yes|no"}}' "Is snow cold? " """.rstrip(),
        ),
    ),
    "decide": _Method(
        "weigh the answers to a question",
        call_decide.configure_decide,
        (
            'imp call decide --label yes --label no "Is the sky blue?"',
            'imp call decide --range 1:5 --json "How polite is this, from 1 to 5? Give me that!"',
        ),
    ),
    "embed": _Method(
        "print the vectors of texts",
        call_vectors.configure_embed,
        ('imp call embed "Hello" "Good morning"', "imp call embed --npy vectors.npy < texts.txt"),
    ),
    "rerank": _Method(
        "order documents by how well they answer a query",
        call_vectors.configure_rerank,
        ('imp call rerank "capital of France" docs.txt', 'imp call rerank --top-n 3 "capital of France" < docs.txt'),
    ),
    "info": _Method(
        "show the model and the server", call_model.configure_info, ("imp call info", "imp call info --config --json")
    ),
    "load": _Method(
        "show how busy the server is",
        call_model.configure_load,
        ("imp call load", "imp call load --json --deadline 1s"),
    ),
    "health": _Method(
        "check whether a service is ready; exit status 0 if it is",
        call_model.configure_health,
        ("imp call health", "imp call health liveness --target unix:///run/imp/imp.sock"),
    ),
    "tokenize": _Method(
        "turn texts into token ids",
        call_tokenizer.configure_tokenize,
        ('imp call tokenize "Once upon a time"', "imp call tokenize --count -"),
    ),
    "detokenize": _Method(
        "turn token ids into text",
        call_tokenizer.configure_detokenize,
        ("imp call detokenize 441 290", "imp call detokenize --special 1 441 290 2"),
    ),
}
EXAMPLES = (
    'imp call "What is imp?"',
    "imp call chat --target imp.example:50051 --tls",
    "imp help call generate",
)


def configure(parser: ArgumentParser) -> None:
    methods = parser.add_subparsers(metavar="METHOD", dest="method", required=True)
    for name in CALL_METHODS:
        text, add_own_options, examples = _METHODS[name]
        method = methods.add_parser(name, help=text, description=text, examples=examples)
        add_own_options(method)
        method.add_argument("--json", action="store_true", help="print each message of the reply as one JSON object")
        add_target_option(method)
        add_connection_options(method)
        add_attempts_option(method)
        add_deadline_option(method)


def run(arguments: Namespace) -> int:
    from imp_service.cli.preflight import silence_grpc

    silence_grpc()
    status: int = arguments.run_method(arguments)
    return status
