"""What may answer a question: --label, once for each, or --range."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace

from imp_service.cli.arguments import Once
from imp_service.cli.failure import CommandError


def add_decision_options(parser: ArgumentParser) -> None:
    """The labels, and how the question is asked."""
    parser.add_argument(
        "--label",
        metavar="TEXT",
        dest="labels",
        action="append",
        default=[],
        help="what may be the answer; once for each label",
    )
    parser.add_argument(
        "--range",
        metavar="LOW:HIGH[:STEP]",
        dest="numbers",
        type=_numbers,
        action=Once,
        help="in place of labels: the answer is one of these whole numbers",
    )
    parser.add_argument("--raw", action="store_true", help="continue the text, without the model's chat template")
    parser.add_argument("--system", metavar="TEXT", action=Once, help="the system message, before the question")


def check_decision_options(arguments: Namespace) -> None:
    """Refuses options that no model accepts, before the model is loaded or a server is called."""
    from imp_service.api.decision_arguments import decisions_of
    from imp_service.api.errors import Violation, refuse
    from imp_service.api.facts import findings
    from imp_service.generation.limits import ENGINE

    if arguments.raw and arguments.system is not None:
        raise CommandError("USAGE", "--system: given together with --raw, expected one of them")
    n_labels = len(arguments.labels or ())
    if n_labels < 2 if arguments.numbers is None else n_labels > 0:
        raise CommandError("USAGE", "--label: expected two or more, or --range LOW:HIGH")
    [request], _ = decisions_of("", arguments.labels, arguments.numbers, {})
    found = findings(request, ENGINE)
    refuse(Violation(_option_of(each.path), each.message) for each in found)


def _option_of(path: str) -> str:
    """The option of the command line that set a field."""
    return "--range" if path.startswith("range") else "--label"


def _numbers(text: str) -> tuple[int, ...]:
    parts = text.split(":")
    try:
        numbers = tuple(map(int, parts))
    except ValueError:
        numbers = ()
    if not 2 <= len(numbers) <= 3:
        raise ArgumentTypeError(f"{text!r}, expected LOW:HIGH or LOW:HIGH:STEP")
    return numbers
