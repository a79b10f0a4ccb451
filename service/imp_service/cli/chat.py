"""imp chat: a conversation with a model in this process. The prefix cache holds the earlier turns."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.conversation import ChatAnswer, Conversation, Turn, TurnFailed, add_conversation_options
from imp_service.cli.options.settings import add_model_options, load_model_settings
from imp_service.cli.run import add_output_options, check_output_options, sampled_request
from imp_service.cli.terminal import HINT, is_interactive, typed_messages

if TYPE_CHECKING:
    from imp_service.generation import GenerationRequest, LanguageModel, ModelRuntime

# After one of these errors, another message or a shorter conversation may be answered.
_RECOVERABLE = ("CONTEXT_TOO_LONG", "FIELD_INVALID", "KV_FULL", "NO_CANDIDATE", "TEMPLATE_FAILED")
EXAMPLES = (
    "imp chat",
    'imp chat model.gguf --system "Be brief." --drop-oldest',
)


def configure(parser: ArgumentParser) -> None:
    add_model_options(parser, as_word=True)
    add_conversation_options(parser)
    add_output_options(parser)


def run(arguments: Namespace) -> int:
    from imp_service.cli.banner import print_banner
    from imp_service.cli.progress import load_model
    from imp_service.generation import LanguageModel

    config = load_model_settings(arguments)
    check_output_options(arguments)
    runtime, file = load_model(config)
    with LanguageModel(runtime) as model:
        runtime.prepare_chats()
        print_banner(runtime, file)
        _ = runtime.text.templates.default  # fails here if there is none, before anything is typed
        if is_interactive():
            print(HINT, file=sys.stderr, flush=True)
        responder = _LocalResponder(model, runtime, arguments)
        conversation = Conversation(responder, drops_oldest=arguments.drop_oldest, is_interactive=is_interactive())
        conversation.hold(typed_messages())
    return 0


class _LocalResponder:
    """Answers with a model in this process."""

    def __init__(self, model: "LanguageModel", runtime: "ModelRuntime", arguments: Namespace) -> None:
        self._model = model
        self._runtime = runtime
        self._arguments = arguments

    def answer(self, turns: Sequence[Turn]) -> ChatAnswer:
        from imp_service.cli.answer import Answer, collect
        from imp_service.cli.terminal import AnswerWriter

        writer, answer, is_stopped = AnswerWriter(), Answer(), False
        try:
            with self._model.generate(self._request(turns)) as generation:
                collect(answer, generation, writer)
        except KeyboardInterrupt:
            is_stopped = True
        except Exception as error:
            if answer.text:
                writer.end_line()
            reason = getattr(error, "reason", None)
            if reason in _RECOVERABLE:
                raise TurnFailed(error, is_full=reason == "CONTEXT_TOO_LONG") from error
            raise
        if answer.text or not is_stopped:
            writer.end_line()
        ended = "" if answer.finished is None else answer.finished.reason
        if ended not in ("", "stop"):
            print(f"— {answer.summary}.", file=sys.stderr, flush=True)
        return ChatAnswer(answer.text, is_stopped, is_cut=ended == "context_full")

    def _request(self, turns: Sequence[Turn]) -> "GenerationRequest":
        from imp_service.text import ChatMessage, ChatPrompt

        system = [] if self._arguments.system is None else [ChatMessage("system", self._arguments.system)]
        messages = [*system, *(ChatMessage(turn.role, turn.content) for turn in turns)]
        return sampled_request(self._runtime, ChatPrompt(tuple(messages)), self._arguments)
