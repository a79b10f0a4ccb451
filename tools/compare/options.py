"""The options that several comparisons have."""

from __future__ import annotations

from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from compare.rounds import Rules
from imp_service.cli.arguments import positive_integer


def parser_of(name: str, description: str | None) -> ArgumentParser:
    """Returns the parser of a comparison that writes a report."""
    parser = ArgumentParser(
        prog=f"python tools/compare {name}", description=description, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    return parser


def add_round_options(parser: ArgumentParser, reps: int) -> None:
    """Adds the options of a comparison whose engines take turns; `reps` is the usual number of rounds."""
    parser.add_argument("--reps", type=positive_integer, metavar="N", help=f"quiet rounds; default: {reps}")
    parser.add_argument(
        "--others",
        type=float,
        default=Rules.others,
        metavar="CPUS",
        help="what other processes may use of the CPUs in a quiet round; default: %(default)s",
    )
    parser.add_argument("--quick", action="store_true", help="small sizes and few rounds, to see that it runs")
    parser.add_argument("--svg", type=Path, metavar="FILE", help="draw the fractions of the ceilings into FILE")
