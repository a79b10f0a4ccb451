"""The options of a command that asks a model in its own process: the answer's length, sampling and constraints."""

from argparse import ArgumentParser, Namespace

from imp_service.cli.options.sampling import (
    add_constraint_options,
    add_length_option,
    add_sampling_options,
    given_sampling,
    option_of,
    read_constraint,
)
from imp_service.cli.options.words import STDIN

# The built-in model rarely ends a story by itself.
BUILT_IN_TOKENS = 256


def add_output_options(parser: ArgumentParser) -> None:
    add_length_option(parser, f"built-in model: {BUILT_IN_TOKENS}")
    add_sampling_options(parser, "of the model")
    add_constraint_options(parser)
    parser.add_argument("--verbose", action="store_true", help="after each answer, show its tokens and their speed")


def check_output_options(arguments: Namespace) -> None:
    """Refuses values that no model accepts, before the model is loaded; errors name the options."""
    from imp_service.api.errors import Violation, refuse
    from imp_service.api.facts import findings
    from imp_service.api.options import GenerationRequest, SamplingOptions, StopOptions
    from imp_service.generation.limits import ENGINE

    options = (
        StopOptions(max_tokens=arguments.max_tokens),
        SamplingOptions(**given_sampling(arguments)),  # type: ignore[arg-type]
        GenerationRequest("", max_reasoning_tokens=arguments.max_reasoning_tokens),
    )
    found = [each for group in options for each in findings(group, ENGINE)]
    refuse(Violation(option_of(each.path), each.message) for each in found)
    if arguments.json_schema != STDIN:  # which can be read once only
        read_constraint(arguments)
