"""The request for a prompt of the command line and its images, to a model in this process."""

from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from imp_service.cli.answer import ANSWER_TOKENS, CONTINUATION_TOKENS
from imp_service.cli.failure import CommandError
from imp_service.cli.options.images import read_images, reads_no_images, shown_name
from imp_service.cli.options.output import BUILT_IN_TOKENS
from imp_service.cli.options.sampling import given_sampling, read_constraint
from imp_service.cli.options.settings import load_model_settings
from imp_service.cli.options.words import load_named_model, read_words
from imp_service.cli.terminal import print_note

if TYPE_CHECKING:
    from imp_service.api.chat_prompt import ContentParts, InfillPrompt, PromptParts
    from imp_service.api.options import GenerationRequest, Prompt
    from imp_service.config import Config
    from imp_service.generation import LanguageModel, ModelRuntime
    from imp_service.text import ChatPrompt, ConstraintSpec


@contextmanager
def asked_model(
    arguments: Namespace, words: Sequence[str], check: Callable[[Namespace], None]
) -> "Iterator[tuple[LanguageModel, ModelRuntime, str, Sequence[bytes]]]":
    """The model of a command line, open within the `with` block, and the text and the images that it is asked.

    What is wrong with those and with the options, which `check` refuses, is said before the model is loaded.
    """
    config = load_model_settings(arguments)
    check(arguments)
    images = read_images(arguments.images, words, config.settings.media.request_bytes)
    text = read_words(words, config, arguments)
    runtime, file = load_named_model(config, arguments, words)
    from imp_service.cli.banner import print_banner
    from imp_service.generation import LanguageModel

    with LanguageModel(runtime) as model:
        print_banner(runtime, file)
        check_images(runtime, zip(arguments.images, images, strict=True))
        yield model, runtime, text, images


def check_images(model: "ModelRuntime", images: "Iterable[tuple[str, bytes]]") -> None:
    """Raises CommandError if the model reads no images, or not one of these, which have the names of their files."""
    from imp_service.media import EncodedImage
    from imp_service.text import FieldInvalid

    for name, content in images:
        if model.images is None:
            raise no_images(model.config, model.name)
        try:
            model.images.decode_here(model.images.plan(EncodedImage(content), name))  # which keeps the pixels
        except FieldInvalid as error:
            raise CommandError("IMAGE_INVALID", f"{shown_name(name)}: {error.message}") from None


def no_images(config: "Config", name: str) -> CommandError:
    """The error for images that a model in this process does not read."""
    from imp_service.cli.banner import is_built_in

    if not config.settings.model.vision:
        return CommandError("FEATURE_DISABLED", "model.vision is off, so the model reads no images")
    return reads_no_images("the built-in demo" if is_built_in(config) else name)


def is_chat(model: "ModelRuntime", arguments: Namespace) -> bool:
    """Whether the prompt is a message. Says so if the model has no chat template, which makes it a text to continue."""
    if arguments.raw or not model.text.templates.is_empty:
        return not arguments.raw
    if arguments.system is not None:
        raise CommandError("NO_CHAT_TEMPLATE", "--system: this model has no chat template, so it takes none")
    print_note("— this model has no chat template, so it continues the text.")
    return False


def content_of(text: str, images: Sequence[bytes]) -> "str | ContentParts":
    """The content of a message: its images, then its text."""
    from imp_service.api.image import Image

    return (*map(Image, images), text) if images else text


def question(text: str, system: str | None, images: Sequence[bytes] = ()) -> "ChatPrompt":
    """A conversation of one message."""
    from imp_service.text import ChatMessage, ChatPrompt

    first = [] if system is None else [ChatMessage("system", system)]
    return ChatPrompt((*first, ChatMessage("user", content_of(text, images))))


def continued(text: str, images: Sequence[bytes]) -> "str | PromptParts":
    """A text to continue, after its images."""
    from imp_service.api.chat_prompt import PromptParts

    parts = content_of(text, images)
    return parts if isinstance(parts, str) else PromptParts(parts)


def filled(model: "ModelRuntime", prefix: str, suffix: str) -> "InfillPrompt":
    """A gap to fill. Raises CommandError if the model fills none."""
    from imp_service.api.chat_prompt import InfillPrompt
    from imp_service.generation.infill import NO_INFILL

    if model.tokenizer.infill is None:
        raise CommandError("NOT_SUPPORTED_BY_MODEL", f"--suffix: {NO_INFILL}")
    return InfillPrompt(prefix, suffix)


def sampled_request(model: "ModelRuntime", prompt: "Prompt", arguments: Namespace) -> "GenerationRequest":
    """The request for `prompt`, a text to continue or a chat, with the options of the command line."""
    from imp_service.api.options import GenerationRequest, SamplingOptions, StopOptions
    from imp_service.text import ChatPrompt

    read = model.prompts.read(prompt, begins=True)
    max_tokens = arguments.max_tokens
    if max_tokens is None:
        bound = _most_tokens(model, is_text=not isinstance(prompt, ChatPrompt))
        # No bound beyond the context: then the context ends the text, and the engine reports that.
        max_tokens = bound if len(read.ids) + bound <= model.max_context else None
    return GenerationRequest(
        prompt if read.images.plans or read.ends else read.ids,
        sampling=SamplingOptions(**given_sampling(arguments)),  # type: ignore[arg-type]
        stop=StopOptions(max_tokens=max_tokens),
        constraint=_constraint(arguments),
        max_reasoning_tokens=arguments.max_reasoning_tokens,
    )


def _most_tokens(model: "ModelRuntime", *, is_text: bool) -> int:
    """The length of an answer that nobody asked to be long."""
    from imp_service.cli.banner import is_built_in

    most = CONTINUATION_TOKENS if is_text else ANSWER_TOKENS
    most = BUILT_IN_TOKENS if is_built_in(model.config) else most
    return min(most, model.config.settings.limits.max_tokens or most)


def _constraint(arguments: Namespace) -> "ConstraintSpec | None":
    chosen = read_constraint(arguments)
    if chosen is None:
        return None
    from imp_service.text import ConstraintKind, ConstraintSpec

    return ConstraintSpec(ConstraintKind(chosen.kind), chosen.source, unbounded_whitespace=chosen.unbounded_whitespace)
