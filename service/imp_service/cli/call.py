"""imp call: calls any imp.v1 server; the reply goes to stdout, everything else to stderr."""

from argparse import ArgumentParser, Namespace

from imp_service.cli import call_generate, call_model, call_tokenizer
from imp_service.cli.commands import CALL_METHODS
from imp_service.cli.connection_options import (
    add_attempts_option,
    add_connection_options,
    add_deadline_option,
    add_target_option,
)

_METHODS = {
    "generate": ("continue a text; what is meant where no method is typed", call_generate.configure_generate),
    "chat": ("answer a message, or hold a conversation where none is given", call_generate.configure_chat),
    "info": ("tell the model and the server", call_model.configure_info),
    "load": ("tell how busy the server is", call_model.configure_load),
    "health": ("ask whether a service is served; exit status 0 where it is", call_model.configure_health),
    "tokenize": ("turn texts into token ids", call_tokenizer.configure_tokenize),
    "detokenize": ("turn token ids into text", call_tokenizer.configure_detokenize),
}


def configure(parser: ArgumentParser) -> None:
    methods = parser.add_subparsers(metavar="METHOD", dest="method", required=True)
    for name in CALL_METHODS:
        text, add_own_options = _METHODS[name]
        method = methods.add_parser(name, help=text, description=text)
        add_own_options(method)
        method.add_argument("--json", action="store_true", help="print each message of the reply as one JSON object")
        add_target_option(method)
        add_connection_options(method)
        add_attempts_option(method)
        add_deadline_option(method)


def run(arguments: Namespace) -> int:
    from imp_service.cli.library_switches import quiet_grpc

    quiet_grpc()
    status: int = arguments.act(arguments)
    return status
