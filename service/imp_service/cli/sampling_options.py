"""The options of a sampler: one for each of its fields, with the core's words for it."""

from argparse import ArgumentParser, Namespace

from imp_service.cli.arguments import Once


def add_sampling_options(parser: ArgumentParser, default: str) -> None:
    """`default` says whose value a field has that is not given."""
    from imp_service.tables import SAMPLER_FIELDS

    for name, field in SAMPLER_FIELDS.items():
        parser.add_argument(
            option_of(name),
            metavar="N" if field.is_whole else "X",
            type=int if field.is_whole else float,
            action=Once,
            help=f"{field.meaning} (default: {default})",
        )
    parser.add_argument(
        "--seed", metavar="S", type=int, action=Once, help="the same seed gives the same text (default: a new one)"
    )


def given_sampling(arguments: Namespace) -> dict[str, float]:
    """The fields that were given, by their names in imp.v1."""
    from imp_service.tables import SAMPLER_FIELDS

    found = {name: getattr(arguments, name) for name in (*SAMPLER_FIELDS, "seed")}
    return {name: value for name, value in found.items() if value is not None}


def option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"
