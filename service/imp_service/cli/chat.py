"""imp chat: a conversation over the model's chat template; each turn finds what came before in the prefix cache."""

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from imp_service.cli.model_options import add_model_options, load_model_settings
from imp_service.cli.run import add_sampling_options, check_sampling_options, sampled_request
from imp_service.cli.typed_lines import HINT, is_interactive, typed_lines

if TYPE_CHECKING:
    from imp_service.generation import LanguageModel
    from imp_service.text import ChatMessage


def configure(parser: ArgumentParser) -> None:
    add_model_options(parser)
    parser.add_argument("--system", metavar="TEXT", help="what the model is told before the conversation begins")
    add_sampling_options(parser)


def run(arguments: Namespace) -> int:
    from imp_service.cli.banner import introduce
    from imp_service.cli.loading import load_model

    config = load_model_settings(arguments)
    check_sampling_options(arguments)
    model, file = load_model(config)
    with model:
        introduce(model, file)
        _ = model.text.template  # a model without one is told before anything is typed
        if is_interactive():
            print(HINT, file=sys.stderr, flush=True)
        _converse(model, arguments)
    return 0


def _converse(model: "LanguageModel", arguments: Namespace) -> None:
    from imp_service.text import ChatMessage

    messages = [] if arguments.system is None else [ChatMessage("system", arguments.system)]
    for line in typed_lines():
        messages.append(ChatMessage("user", line))
        messages.append(ChatMessage("assistant", _answer(model, messages, arguments)))


def _answer(model: "LanguageModel", messages: "list[ChatMessage]", arguments: Namespace) -> str:
    """One turn. Ctrl-C ends the answer and keeps it; anywhere else it ends the command."""
    from imp_service.cli.answer import Answer, gather
    from imp_service.cli.terminal import AnswerWriter
    from imp_service.text import ChatPrompt

    request = sampled_request(model, ChatPrompt(tuple(messages)), arguments)
    writer, answer = AnswerWriter(), Answer()
    try:
        with model.generate(request) as generation:
            gather(answer, generation, writer)
    except KeyboardInterrupt:
        if not is_interactive():
            raise
    writer.end_line()
    if answer.finished is not None and answer.finished.reason != "stop":
        print(f"— {answer.summary}.", file=sys.stderr, flush=True)
    return answer.text
