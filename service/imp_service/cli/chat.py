"""imp chat: a conversation with a model in this process. The prefix cache holds the earlier turns."""

from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.answer import Answer, collect, print_end
from imp_service.cli.conversation.dialogue import ChatAnswer, Dialogue, TurnFailed
from imp_service.cli.conversation.hold import hold_conversation, say_once
from imp_service.cli.conversation.options import add_conversation_options, begin_dialogue
from imp_service.cli.local_request import check_images, content_of, sampled_request
from imp_service.cli.options.images import add_image_option, read_image, read_images
from imp_service.cli.options.output import add_output_options, check_output_options
from imp_service.cli.options.sampling import number_names
from imp_service.cli.options.settings import (
    add_model_options,
    add_projector_option,
    add_speculation_options,
    load_model_settings,
)
from imp_service.cli.options.words import add_words, load_named_model, read_words, split_words
from imp_service.cli.terminal import answer_writer

if TYPE_CHECKING:
    from imp_service.api.options import GenerationRequest
    from imp_service.generation import LanguageModel, ModelRuntime

# After one of these errors, another message or a shorter conversation may be answered.
_RECOVERABLE = ("CONTEXT_TOO_LONG", "FIELD_INVALID", "KV_FULL", "NO_CANDIDATE", "TEMPLATE_FAILED")
EXAMPLES = (
    "imp chat",
    'imp chat model.gguf "Why is the sky blue?"',
    'imp chat model.gguf --system "Be brief." --drop-oldest',
    'imp chat SmolVLM2.gguf --image cat.jpg "What is this?"',
)


def configure(parser: ArgumentParser) -> None:
    add_words(parser, "MESSAGE", "one message; without it, a conversation begins")
    add_model_options(parser)
    add_projector_option(parser)
    add_speculation_options(parser)
    add_image_option(parser)
    add_conversation_options(parser)
    add_output_options(parser)


def run(arguments: Namespace) -> int:
    return converse(arguments, split_words(arguments, is_model=True))


def converse(arguments: Namespace, words: Sequence[str]) -> int:
    """Answers the message of these words, or holds a conversation without them."""
    from imp_service.cli.banner import print_banner

    config = load_model_settings(arguments)
    check_output_options(arguments)
    images = read_images(arguments.images, words, config.settings.media.request_bytes)
    runtime, file = load_named_model(config, arguments, words)
    from imp_service.generation import LanguageModel

    with LanguageModel(runtime) as model:
        runtime.prepare_chats()
        print_banner(runtime, file)
        _ = runtime.text.templates.default  # fails here if there is none, before anything is typed
        check_images(runtime, zip(arguments.images, images, strict=True))
        responder, dialogue = _LocalResponder(model, runtime, arguments), begin_dialogue(arguments, images)
        if words:
            say_once(responder, dialogue, read_words(words, config, arguments), arguments)
        else:
            hold_conversation(responder, dialogue, arguments)
    return 0


class _LocalResponder:
    """Answers with a model in this process."""

    def __init__(self, model: "LanguageModel", runtime: "ModelRuntime", arguments: Namespace) -> None:
        self._model = model
        self._runtime = runtime
        self._arguments = arguments
        self._writer = answer_writer(plain=arguments.plain or bool(arguments.json_schema or arguments.regex))

    def answer(self, dialogue: Dialogue) -> ChatAnswer:
        writer, answer, is_stopped = self._writer, Answer(), False
        try:
            with self._model.generate(self._request(dialogue)) as generation:
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
        print_end(answer, self._arguments.verbose)
        ended = "" if answer.finished is None else answer.finished.reason
        return ChatAnswer(answer.text, is_stopped, is_cut=ended == "context_full")

    def read_image(self, name: str) -> bytes:
        content = read_image(name, self._runtime.config.settings.media.request_bytes)
        check_images(self._runtime, [(name, content)])
        return content

    def check_options(self, options: dict[str, float]) -> None:
        check_output_options(self._with(options))

    def default_sampling(self) -> Sequence[tuple[str, str, str]]:
        from imp_service.cli.sampling_text import sampling_rows

        default = self._runtime.default_sampler
        return sampling_rows(default.options, default.origins)

    def _request(self, dialogue: Dialogue) -> "GenerationRequest":
        from imp_service.text import ChatMessage, ChatPrompt

        system = [] if dialogue.system is None else [ChatMessage("system", dialogue.system)]
        messages = [
            *system,
            *(ChatMessage(turn.role, content_of(turn.content, turn.images)) for turn in dialogue.turns),
        ]
        return sampled_request(self._runtime, ChatPrompt(tuple(messages)), self._with(dialogue.options))

    def _with(self, options: dict[str, float]) -> Namespace:
        """The arguments of the command line, with these options in place of its own."""
        return Namespace(**{**vars(self._arguments), **dict.fromkeys(number_names()), **options})
