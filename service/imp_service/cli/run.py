"""imp run: continues a text with a model; the text goes to stdout as it comes, everything else to stderr."""

import sys
from argparse import ArgumentParser, Namespace
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once
from imp_service.cli.options.sampling import (
    add_constraint_options,
    add_sampling_options,
    given_sampling,
    option_of,
    read_constraint,
)
from imp_service.cli.options.settings import add_model_options, add_speculation_options, load_model_settings

if TYPE_CHECKING:
    from imp_service.api.options import GenerationRequest
    from imp_service.generation import LanguageModel, ModelRuntime
    from imp_service.text import ConstraintSpec

# The built-in model rarely ends a story by itself.
BUILT_IN_MAX_TOKENS = 256
EXAMPLES = (
    'imp run "Once upon a time"',
    'imp run -m model.gguf --temperature 0 -n 100 "The sky is blue because"',
    'imp run -m model.gguf --json-schema schema.json "A cat as JSON: "',
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "prompt",
        metavar="PROMPT",
        nargs="+",
        help="the text to continue, in one or several words; - reads it from stdin",
    )
    add_model_options(parser)
    add_speculation_options(parser)
    add_output_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object when done, instead of the text")


def add_output_options(parser: ArgumentParser) -> None:
    parser.add_argument(
        "-n",
        "--max-tokens",
        metavar="N",
        type=int,
        action=Once,
        help=f"most tokens to write (default: what the context holds; built-in model: {BUILT_IN_MAX_TOKENS})",
    )
    add_sampling_options(parser, "of the model")
    add_constraint_options(parser)


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
    from imp_service.cli.progress import load_model
    from imp_service.cli.terminal import is_prompt_shown, join_prompt, read_prompt

    config = load_model_settings(arguments)
    check_output_options(arguments)
    typed = join_prompt(arguments.prompt)
    prompt = read_prompt(typed)
    runtime, file = load_model(config)
    from imp_service.generation import LanguageModel

    with LanguageModel(runtime) as model:
        print_banner(runtime, file)
        request = sampled_request(runtime, prompt, arguments)
        if arguments.json:
            _write_json(model, request)
        else:
            shown = prompt if is_prompt_shown(typed) else ""
            _write_text(model, request, shown, has_hints=is_built_in(config))
    return 0


def sampled_request(model: "ModelRuntime", prompt: object, arguments: Namespace) -> "GenerationRequest":
    """The request for `prompt`, text or chat, with the options of the command line."""
    from imp_service.api.options import GenerationRequest, SamplingOptions, StopOptions
    from imp_service.cli.banner import is_built_in

    ids = model.prompt_ids(prompt, begins=True)  # type: ignore[arg-type]
    max_tokens = arguments.max_tokens
    if max_tokens is None and is_built_in(model.config):
        bound = min(BUILT_IN_MAX_TOKENS, model.config.settings.limits.max_tokens or BUILT_IN_MAX_TOKENS)
        # No bound beyond the context: then the context ends the text, and the engine reports that.
        max_tokens = bound if len(ids) + bound <= model.max_context else None
    return GenerationRequest(
        ids,
        sampling=SamplingOptions(**given_sampling(arguments)),  # type: ignore[arg-type]
        stop=StopOptions(max_tokens=max_tokens),
        constraint=_constraint(arguments),
    )


def _constraint(arguments: Namespace) -> "ConstraintSpec | None":
    chosen = read_constraint(arguments)
    if chosen is None:
        return None
    from imp_service.text import ConstraintKind, ConstraintSpec

    return ConstraintSpec(ConstraintKind(chosen.kind), chosen.source, unbounded_whitespace=chosen.unbounded_whitespace)


def _write_text(model: "LanguageModel", request: "GenerationRequest", shown_prompt: str, *, has_hints: bool) -> None:
    from imp_service.cli.answer import Answer, collect
    from imp_service.cli.terminal import AnswerWriter, print_note

    AnswerWriter(sys.stderr).write(shown_prompt)
    writer = AnswerWriter()
    answer = Answer()
    try:
        with model.generate(request) as generation:
            collect(answer, generation, writer)
    except BaseException:
        if sys.stdout.isatty():  # the error, or the prompt of the shell, begins on a new line
            writer.end_line()
        raise
    writer.end_line()
    hints = '   Next: imp chat · imp doctor · imp run -m model.gguf "…"' if has_hints and sys.stderr.isatty() else ""
    print_note(f"— {answer.summary}.{hints}")


def _write_json(model: "LanguageModel", request: "GenerationRequest") -> None:
    import json

    from imp_service.cli.answer import Answer, answer_object, collect

    answer = Answer()
    with model.generate(request) as generation:
        collect(answer, generation, None)
    sys.stdout.write(json.dumps({"model": model.name, **answer_object(answer)}, ensure_ascii=False) + "\n")
