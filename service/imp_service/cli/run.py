"""imp run: answers a question, or continues a text; that goes to stdout as it comes, everything else to stderr."""

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from imp_service.cli.answer import ANSWER_TOKENS, CONTINUATION_TOKENS
from imp_service.cli.arguments import Once
from imp_service.cli.failure import CommandError
from imp_service.cli.options.sampling import (
    add_constraint_options,
    add_length_option,
    add_sampling_options,
    given_sampling,
    option_of,
    read_constraint,
)
from imp_service.cli.options.settings import add_model_options, add_speculation_options, load_model_settings
from imp_service.cli.options.words import STDIN, add_words, load_named_model, read_words, split_words
from imp_service.cli.terminal import AnswerWriter, answer_writer, is_prompt_shown, print_dim, print_note

if TYPE_CHECKING:
    from imp_service.api.options import GenerationRequest
    from imp_service.cli.answer import Answer
    from imp_service.cli.terminal import TextWriter
    from imp_service.generation import LanguageModel, ModelRuntime
    from imp_service.text import ChatPrompt, ConstraintSpec

# The built-in model rarely ends a story by itself.
BUILT_IN_TOKENS = 256
EXAMPLES = (
    'imp run "What is imp?"',
    'imp run model.gguf --system "Be brief." "Why is the sky blue?"',
    'imp run model.gguf --raw --temperature 0 -n 100 "The sky is blue because"',
    'imp run model.gguf --json-schema schema.json "Describe a cat."',
)


def configure(parser: ArgumentParser) -> None:
    add_words(parser, "PROMPT", "the question, or with --raw the text")
    add_model_options(parser)
    add_speculation_options(parser)
    parser.add_argument("--raw", action="store_true", help="continue the text, without the model's chat template")
    parser.add_argument("--system", metavar="TEXT", action=Once, help="the system message, before the question")
    parser.add_argument(
        "--plain", action="store_true", help="show the answer as the model writes it (default: Markdown on a terminal)"
    )
    add_output_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object when done, instead of the text")


def add_output_options(parser: ArgumentParser) -> None:
    add_length_option(parser, f"built-in model: {BUILT_IN_TOKENS}")
    add_sampling_options(parser, "of the model")
    add_constraint_options(parser)
    parser.add_argument("--verbose", action="store_true", help="after each answer, show its tokens and their speed")


def check_output_options(arguments: Namespace) -> None:
    """Refuses values that no model accepts, before the model is loaded; errors name the options."""
    from imp_service.api.errors import refuse
    from imp_service.generation.validate import SAMPLING_BOUNDS, SEED, TOKEN_COUNT

    bounds = {"max_tokens": TOKEN_COUNT, **SAMPLING_BOUNDS, "seed": SEED}
    refuse(
        violation
        for name, allowed in bounds.items()
        for violation in allowed.check(option_of(name), getattr(arguments, name))
    )


def run(arguments: Namespace) -> int:
    from imp_service.cli.banner import is_built_in, print_banner

    words = split_words(arguments, is_model=False)
    if arguments.raw and arguments.system is not None:
        raise CommandError("USAGE", "--system: given together with --raw, expected one of them")
    config = load_model_settings(arguments)
    check_output_options(arguments)
    prompt = read_words(words, config, arguments)
    runtime, file = load_named_model(config, arguments, words)
    from imp_service.generation import LanguageModel

    with LanguageModel(runtime) as model:
        print_banner(runtime, file)
        is_chat = _is_chat(runtime, arguments)
        request = sampled_request(runtime, question(prompt, arguments.system) if is_chat else prompt, arguments)
        if arguments.json:
            _write_json(model, request)
        else:
            writer = _writer(arguments, is_chat=is_chat)
            if not is_chat and is_prompt_shown(" ".join(words) or STDIN):
                AnswerWriter(sys.stderr).write(prompt)
            _write_text(model, request, writer, arguments.verbose, has_hints=is_built_in(config))
    return 0


def _is_chat(model: "ModelRuntime", arguments: Namespace) -> bool:
    """Whether the prompt is a message. Says so if the model has no chat template, which makes it a text to continue."""
    if arguments.raw or not model.text.templates.is_empty:
        return not arguments.raw
    if arguments.system is not None:
        raise CommandError("NO_CHAT_TEMPLATE", "--system: this model has no chat template, so it takes none")
    print_note("— this model has no chat template, so it continues the text.")
    return False


def question(text: str, system: str | None) -> "ChatPrompt":
    """A conversation of one message."""
    from imp_service.text import ChatMessage, ChatPrompt

    first = [] if system is None else [ChatMessage("system", system)]
    return ChatPrompt((*first, ChatMessage("user", text)))


def sampled_request(model: "ModelRuntime", prompt: "str | ChatPrompt", arguments: Namespace) -> "GenerationRequest":
    """The request for `prompt`, text or chat, with the options of the command line."""
    from imp_service.api.options import GenerationRequest, SamplingOptions, StopOptions

    ids = model.prompt_ids(prompt, begins=True)
    max_tokens = arguments.max_tokens
    if max_tokens is None:
        bound = _most_tokens(model, is_text=isinstance(prompt, str))
        # No bound beyond the context: then the context ends the text, and the engine reports that.
        max_tokens = bound if len(ids) + bound <= model.max_context else None
    return GenerationRequest(
        ids,
        sampling=SamplingOptions(**given_sampling(arguments)),  # type: ignore[arg-type]
        stop=StopOptions(max_tokens=max_tokens),
        constraint=_constraint(arguments),
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


def _writer(arguments: Namespace, *, is_chat: bool) -> "TextWriter":
    plain = arguments.plain or not is_chat or arguments.json_schema is not None or arguments.regex is not None
    return answer_writer(plain=plain)


def _write_text(
    model: "LanguageModel", request: "GenerationRequest", writer: "TextWriter", verbose: bool, *, has_hints: bool
) -> None:
    from imp_service.cli.answer import Answer, collect

    answer = Answer()
    try:
        with model.generate(request) as generation:
            collect(answer, generation, writer)
    except BaseException:
        if sys.stdout.isatty():  # the error, or the prompt of the shell, begins on a new line
            writer.end_line()
        raise
    writer.end_line()
    print_end(answer, verbose)
    if has_hints and sys.stderr.isatty():
        print_dim('Next: imp chat · imp doctor · imp run model.gguf "…"')


def print_end(answer: "Answer", verbose: bool) -> None:
    """Prints why an answer ended, unless the model ended it; with `verbose` its tokens and their speed too."""
    if answer.finished is not None and (verbose or answer.is_approximate):
        print_dim(f"— {answer.summary}.")
    elif answer.end:
        print_dim(f"— {answer.end}.")


def _write_json(model: "LanguageModel", request: "GenerationRequest") -> None:
    import json

    from imp_service.cli.answer import Answer, answer_object, collect

    answer = Answer()
    with model.generate(request) as generation:
        collect(answer, generation, None)
    sys.stdout.write(json.dumps({"model": model.name, **answer_object(answer)}, ensure_ascii=False) + "\n")
