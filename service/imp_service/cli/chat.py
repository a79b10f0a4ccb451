"""imp chat: a conversation over the model's chat template; each turn finds what came before in the prefix cache."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.conversation import Conversation, Said, Turn, TurnFailed, add_conversation_options
from imp_service.cli.options.settings import add_model_options, load_model_settings
from imp_service.cli.run import add_output_options, check_output_options, sampled_request
from imp_service.cli.terminal import HINT, is_interactive, typed_messages

if TYPE_CHECKING:
    from imp_service.generation import GenerationRequest, LanguageModel, ModelRuntime

# Another message, or a shorter conversation, may have an answer where this one has none.
_PASSING = ("CONTEXT_TOO_LONG", "FIELD_INVALID", "KV_FULL", "NO_CANDIDATE", "TEMPLATE_FAILED")
EXAMPLES = (
    "imp chat",
    'imp chat model.gguf --system "Be brief." --drop-oldest',
)


def configure(parser: ArgumentParser) -> None:
    add_model_options(parser, as_word=True)
    add_conversation_options(parser)
    add_output_options(parser)


def run(arguments: Namespace) -> int:
    from imp_service.cli.banner import introduce
    from imp_service.cli.progress import load_model
    from imp_service.generation import LanguageModel

    config = load_model_settings(arguments)
    check_output_options(arguments)
    runtime, file = load_model(config)
    with LanguageModel(runtime) as model:
        runtime.prepare_chats()
        introduce(runtime, file)
        _ = runtime.text.templates.default  # a model without one is told before anything is typed
        if is_interactive():
            print(HINT, file=sys.stderr, flush=True)
        talker = _LoadedTalker(model, runtime, arguments)
        conversation = Conversation(talker, drops_oldest=arguments.drop_oldest, is_interactive=is_interactive())
        conversation.hold(typed_messages())
    return 0


class _LoadedTalker:
    """A model of this process."""

    def __init__(self, model: "LanguageModel", runtime: "ModelRuntime", arguments: Namespace) -> None:
        self._model = model
        self._runtime = runtime
        self._arguments = arguments

    def answer(self, turns: Sequence[Turn]) -> Said:
        from imp_service.cli.answer import Answer, gather
        from imp_service.cli.terminal import AnswerWriter

        writer, answer, is_stopped = AnswerWriter(), Answer(), False
        try:
            with self._model.generate(self._request(turns)) as generation:
                gather(answer, generation, writer)
        except KeyboardInterrupt:
            is_stopped = True
        except Exception as error:
            if answer.text:
                writer.end_line()
            reason = getattr(error, "reason", None)
            if reason in _PASSING:
                raise TurnFailed(error, is_full=reason == "CONTEXT_TOO_LONG") from error
            raise
        if answer.text or not is_stopped:
            writer.end_line()
        ended = "" if answer.finished is None else answer.finished.reason
        if ended not in ("", "stop"):
            print(f"— {answer.summary}.", file=sys.stderr, flush=True)
        return Said(answer.text, is_stopped, is_cut=ended == "context_full")

    def _request(self, turns: Sequence[Turn]) -> "GenerationRequest":
        from imp_service.text import ChatMessage, ChatPrompt

        system = [] if self._arguments.system is None else [ChatMessage("system", self._arguments.system)]
        messages = [*system, *(ChatMessage(turn.role, turn.content) for turn in turns)]
        return sampled_request(self._runtime, ChatPrompt(tuple(messages)), self._arguments)
