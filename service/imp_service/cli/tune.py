"""imp tune: measures which of the kernels with equal bits is fastest on this machine, and writes a tuning file."""

import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, positive_integer
from imp_service.cli.atomic_file import write_atomically
from imp_service.cli.options.settings import MODEL_HELP, add_model_option, add_settings_options

if TYPE_CHECKING:
    from imp_service.core.tune import TunedKernel

DEFAULT_FILE = "tuning.json"
DEFAULT_REPS = 5
EXAMPLES = (
    "imp tune model.gguf -o tuning.json",
    "imp tune --types q8_0,q4_k",
)


def configure(parser: ArgumentParser) -> None:
    subjects = parser.add_mutually_exclusive_group()
    add_model_option(subjects, MODEL_HELP, as_word=True)
    subjects.add_argument(
        "--types", metavar="TYPE,…", type=_names, action=Once, help="weight types instead of a model, such as q8_0,q4_k"
    )
    parser.add_argument(
        "-o", "--output", metavar="FILE", action=Once, help=f"the file to write (default: {DEFAULT_FILE})"
    )
    parser.add_argument(
        "--reps",
        metavar="N",
        type=positive_integer,
        action=Once,
        help=f"measurements of each kernel (default: {DEFAULT_REPS})",
    )
    parser.add_argument("--json", action="store_true", help="print the file's content too")
    add_settings_options(parser)


def run(arguments: Namespace) -> int:
    from imp_service.cli.options.settings import load_model_settings
    from imp_service.cli.progress import Progress
    from imp_service.core import open_file
    from imp_service.core.tune import machine_clock, preferences_of, subjects_of_model, subjects_of_types, tune
    from imp_service.core.tuning_file import Tuning, key_here, write_tuning

    arguments.context = None
    config, clock = machine_clock(load_model_settings(arguments))
    if arguments.types is not None:
        subjects = subjects_of_types(arguments.types)
    else:
        subjects = subjects_of_model(open_file(config), config)
    key = key_here(config.settings)
    progress = Progress()
    try:
        choices = tune(subjects, key.isa, arguments.reps or DEFAULT_REPS, clock, progress.show)
    finally:
        progress.clear()
    text = write_tuning(Tuning(key, preferences_of(choices)), [_measured(choice) for choice in choices])
    path = Path(arguments.output or DEFAULT_FILE)
    write_atomically(path, text)
    if arguments.json:
        sys.stdout.write(text)
    else:
        _show(choices)
    print(f'{path}: for {key.cpu}, {key.isa}, {key.threads} threads; [device] tuning = "{path}"', file=sys.stderr)
    return 0


def _names(text: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(text.split(",")))
    if "" in names:
        raise ArgumentTypeError(f"{text}: expected names of weight types with commas between")
    return names


def _measured(choice: "TunedKernel") -> dict[str, object]:
    subject = choice.subject
    return {
        "weight": subject.weight, "n": subject.n, "k": subject.k, "rows": choice.rows, "seconds": choice.seconds
    }  # fmt: skip


def _show(choices: "list[TunedKernel]") -> None:
    from imp_service.cli.output import write_number_table

    rows = []
    for choice in choices:
        up_to = "any" if choice.max_rows is None else f"up to {choice.max_rows}"
        speed = "no other" if choice.gain is None else f"{choice.gain:.2f} ×"
        microseconds = f"{1e6 * choice.seconds[choice.kernel]:.1f}" if choice.seconds else "–"
        rows.append((choice.subject.weight, choice.kernel, choice.by_order, up_to, microseconds, speed))
    write_number_table(sys.stdout, ("weights", "fastest", "by order", "rows", "µs", "gain"), rows, n_words=3)
