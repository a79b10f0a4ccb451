"""imp run: answers a question, or continues a text; that goes to stdout as it comes, everything else to stderr."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.cli.answer import Answer, answer_object, collect, print_end
from imp_service.cli.arguments import Once
from imp_service.cli.failure import CommandError
from imp_service.cli.local_request import asked_model, continued, filled, is_chat, question, sampled_request
from imp_service.cli.options.images import add_image_option, tell_of_chat
from imp_service.cli.options.output import add_output_options, check_output_options
from imp_service.cli.options.settings import (
    add_model_options,
    add_projector_option,
    add_speculation_options,
)
from imp_service.cli.options.words import STDIN, add_words, split_words
from imp_service.cli.terminal import AnswerWriter, answer_writer, is_interactive, is_prompt_shown, print_dim

if TYPE_CHECKING:
    from imp_service.api.options import GenerationRequest, Prompt
    from imp_service.cli.terminal import TextWriter
    from imp_service.generation import LanguageModel, ModelRuntime

EXAMPLES = (
    'imp run "What is imp?"',
    'imp run model.gguf --system "Be brief." "Why is the sky blue?"',
    'imp run model.gguf --raw --temperature 0 -n 100 "The sky is blue because"',
    'imp run coder.gguf "def add(a, b):" --suffix "return total"',
    'imp run model.gguf --json-schema schema.json "Describe a cat."',
    'imp run SmolVLM2.gguf --image cat.jpg "What is this?"',
)


def configure(parser: ArgumentParser) -> None:
    add_words(parser, "PROMPT", "the question, or with --raw the text; without it, a conversation begins on a terminal")
    add_model_options(parser)
    add_projector_option(parser)
    add_speculation_options(parser)
    add_image_option(parser)
    parser.add_argument("--raw", action="store_true", help="continue the text, without the model's chat template")
    parser.add_argument(
        "--suffix",
        metavar="TEXT",
        action=Once,
        help="fill the gap between PROMPT and this text, as code editors do",
    )
    parser.add_argument("--system", metavar="TEXT", action=Once, help="the system message, before the question")
    parser.add_argument(
        "--plain", action="store_true", help="show the answer as the model writes it (default: Markdown on a terminal)"
    )
    add_output_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object when done, instead of the text")


def run(arguments: Namespace) -> int:
    from imp_service.cli.banner import is_built_in

    words = split_words(arguments, is_model=False)
    arguments.raw = arguments.raw or arguments.suffix is not None
    if arguments.raw and arguments.system is not None:
        raise CommandError("USAGE", "--system: given together with --raw or --suffix, expected one of them")
    if arguments.suffix is not None and arguments.images:
        raise CommandError("USAGE", "--suffix: given together with --image, expected one of them")
    if not (words or arguments.raw or arguments.json) and is_interactive():
        from imp_service.cli import chat

        return chat.converse(Namespace(**vars(arguments), drop_oldest=False, no_history=False), words)
    with asked_model(arguments, words, check_output_options) as (model, runtime, prompt, images):
        is_asked = is_chat(runtime, arguments)
        if images and not is_asked and runtime.images is not None and runtime.images.needs_chat:
            tell_of_chat("imp run without --raw")
        asked = _asked(runtime, prompt, images, arguments, is_chat=is_asked)
        request = sampled_request(runtime, asked, arguments)
        if arguments.json:
            _write_json(model, request)
        else:
            writer = _writer(arguments, is_chat=is_asked)
            if not is_asked and is_prompt_shown(" ".join(words) or STDIN):
                AnswerWriter(sys.stderr).write(prompt)
            _write_text(model, request, writer, arguments.verbose, has_hints=is_built_in(runtime.config))
    return 0


def _asked(
    model: "ModelRuntime", text: str, images: Sequence[bytes], arguments: Namespace, *, is_chat: bool
) -> "Prompt":
    """What the words of the command line ask."""
    if arguments.suffix is not None:
        return filled(model, text, arguments.suffix)
    return question(text, arguments.system, images) if is_chat else continued(text, images)


def _writer(arguments: Namespace, *, is_chat: bool) -> "TextWriter":
    plain = arguments.plain or not is_chat or arguments.json_schema is not None or arguments.regex is not None
    return answer_writer(plain=plain)


def _write_text(
    model: "LanguageModel", request: "GenerationRequest", writer: "TextWriter", verbose: bool, *, has_hints: bool
) -> None:
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


def _write_json(model: "LanguageModel", request: "GenerationRequest") -> None:
    import json

    answer = Answer()
    with model.generate(request) as generation:
        collect(answer, generation, None)
    sys.stdout.write(json.dumps({"model": model.name, **answer_object(answer)}, ensure_ascii=False) + "\n")
