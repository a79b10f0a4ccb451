"""imp bench: how fast a model reads prompts and generates, beside this machine's limits measured in the same run."""

import json
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace

from imp_service.cli.arguments import Once, add_settings_options, load_settings
from imp_service.cli.failure import CommandError

DEFAULT_TYPE = "q8_0"


def configure(parser: ArgumentParser) -> None:
    model = parser.add_mutually_exclusive_group()
    model.add_argument("-m", "--model", metavar="PATH", action=Once, help="a model file (default: the built-in model)")
    model.add_argument(
        "--synthetic", metavar="SHAPE", action=Once, help="random weights of a real shape: 0.6b, 1.7b, 4b or 1b"
    )
    parser.add_argument(
        "--type",
        metavar="TYPE",
        action=Once,
        help=f"with --synthetic: q8_0, q4_0, q4_k_m, f16, bf16 or f32 (default: {DEFAULT_TYPE})",
    )
    for option, numbers, default, text in (
        ("--prefill", _numbers, "512", "lengths of prompts to read; 0: none"),
        ("--decode", _numbers, "128", "numbers of tokens to generate; 0: none"),
        ("--depth", _numbers, "0", "tokens that a sequence holds when it begins to generate"),
        ("--batch", _counts, "1", "sequences that generate together"),
        ("--threads", _counts, "device.threads", "threads to compute with"),
    ):
        parser.add_argument(option, metavar="N,…", type=numbers, action=Once, help=f"{text} (default: {default})")
    parser.add_argument("--reps", metavar="N", type=_count, action=Once, help="repetitions of each case (default: 5)")
    parser.add_argument("--json", action="store_true", help="print one JSON object with every measurement")
    add_settings_options(parser)


def run(arguments: Namespace) -> int:
    from imp_service.cli.bench_table import write_table
    from imp_service.config.toml import write_string
    from imp_service.core.bench import BenchPlan, run_bench

    if arguments.type is not None and arguments.synthetic is None:
        raise CommandError("USAGE", "--type is for --synthetic: a file has its types")
    model = [] if arguments.model is None else [f"model.path={write_string(arguments.model)}"]
    threads = [[]] if arguments.threads is None else [[f"device.threads={n}"] for n in arguments.threads]
    configs = [load_settings(arguments, [*model, *assignment]) for assignment in threads]
    file = None
    if arguments.synthetic is not None:
        from imp_service.core.synthetic import synthetic_file

        file = synthetic_file(arguments.synthetic, arguments.type or DEFAULT_TYPE)
    plan = BenchPlan(
        prefill=_positive(arguments.prefill or (512,)),
        decode=_positive(arguments.decode or (128,)),
        depths=arguments.depth or (0,),
        batches=arguments.batch or (1,),
        reps=arguments.reps or 5,
    )
    progress = _Progress()
    try:
        report = run_bench(configs, plan, file, progress.tell)
    finally:
        progress.clear()
    if arguments.json:
        sys.stdout.write(json.dumps(report.as_json(), indent=1) + "\n")
    else:
        write_table(report, sys.stdout)
    return 0


def _numbers(text: str) -> tuple[int, ...]:
    """ "512,2048"."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 8 for part in parts):
        raise ArgumentTypeError(f"{text}: expected whole numbers with commas between")
    return tuple(dict.fromkeys(int(part) for part in parts))


def _counts(text: str) -> tuple[int, ...]:
    numbers = _numbers(text)
    if 0 in numbers:
        raise ArgumentTypeError(f"{text}: expected numbers of at least 1")
    return numbers


def _count(text: str) -> int:
    numbers = _counts(text)
    if len(numbers) != 1:
        raise ArgumentTypeError(f"{text}: expected one number")
    return numbers[0]


def _positive(numbers: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(number for number in numbers if number > 0)


class _Progress:
    """One line on a terminal's stderr that is written over; nothing where nobody looks."""

    def __init__(self) -> None:
        self._is_shown = sys.stderr.isatty()

    def tell(self, line: str) -> None:
        if self._is_shown:
            sys.stderr.write(f"\r\x1b[K{line} …")
            sys.stderr.flush()

    def clear(self) -> None:
        if self._is_shown:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()
