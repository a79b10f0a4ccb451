"""The options of a command that asks a model in its own process: the answer's length, sampling and constraints."""

from argparse import ArgumentParser, Namespace

from imp_service.cli.options.sampling import (
    add_constraint_options,
    add_length_option,
    add_sampling_options,
    option_of,
)

# The built-in model rarely ends a story by itself.
BUILT_IN_TOKENS = 256


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
