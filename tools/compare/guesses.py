"""Measures guesses of a draft model or head that are right at a given rate: random weights never guess right.

`python tools/compare guesses FILE --draft FILE --replay LINES --rates 0.75,0.5,0.1`. The drafter guesses as it always
does, so its work is real. Then each guess is replaced: by the token of the known answer with the given probability, by
another token otherwise. Each answer is decoded without and with guesses in turn. imp learns from the real time of steps
whether to guess. Each rate has an engine of its own. No package but imp is needed.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

from compare.options import parser_of
from compare.report import Report
from imp_service import _core
from imp_service.cli.arguments import positive_integer
from imp_service.config import Config, read_settings
from imp_service.core.bench.engine_runs import EngineRuns
from imp_service.core.bench.guesses import DecodedTwice, GuessBench, Sample, read_samples
from imp_service.core.bench.report import Spread
from imp_service.core.engine_client import EngineClient
from imp_service.core.load import LoadedModel, load_weights


def main(words: Sequence[str]) -> None:
    """Prints a line of JSON for each answer and rate, and then the median gain of each rate."""
    arguments = parsed(words)
    loaded = load_weights(settings_of(arguments))
    samples = read_samples(arguments.replay, None, loaded.model.n_tokens)[: arguments.answers]
    with Report("guesses", arguments, model=arguments.model.name) as report:
        for rate in arguments.rates:
            gains = []
            for sample, found in decoded(loaded, samples, rate, arguments):
                line = {"rate": rate, "kind": sample.kind, "seconds_without": found.without,
                        "seconds_with": found.with_guesses, "gain": found.gain, "drafted": found.drafted,
                        "accepted": found.accepted}  # fmt: skip
                print(json.dumps(line), flush=True)
                report.rows["answers"].append(line)
                gains.append(found.gain)
            gain = Spread.of(gains)
            print(f"rate {rate}: median gain {gain.median:.2f} ({gain.least:.2f} – {gain.most:.2f})", flush=True)


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = parser_of("guesses", __doc__)
    parser.add_argument("model", type=Path, metavar="FILE", help="the model")
    drafter = parser.add_mutually_exclusive_group(required=True)
    drafter.add_argument("--draft", type=Path, metavar="FILE", help="a draft model")
    drafter.add_argument("--head", type=Path, metavar="FOLDER", help="a draft head")
    parser.add_argument("--replay", type=Path, required=True, metavar="FILE", help="JSON lines, as of `imp bench`")
    parser.add_argument("--rates", type=rates, default=[0.75, 0.5, 0.1], metavar="R,…", help="default: %(default)s")
    parser.add_argument("--tokens", type=positive_integer, default=64, metavar="N", help="of an answer; %(default)s")
    parser.add_argument("--answers", type=positive_integer, default=4, metavar="N", help="default: %(default)s")
    parser.add_argument("--always", action="store_true", help="guess even where guesses lose time")
    parser.add_argument("--threads", type=positive_integer, default=2, metavar="N", help="default: %(default)s")
    return parser.parse_args(words)


def rates(text: str) -> list[float]:
    """Returns the numbers of a list with commas."""
    found = [float(word) for word in text.split(",")]
    if not all(0 <= rate <= 1 for rate in found):
        raise argparse.ArgumentTypeError(f"{text}, expected numbers from 0 to 1")
    return found


def settings_of(arguments: argparse.Namespace) -> Config:
    """Returns settings with the drafter alone."""
    given = {"model.path": arguments.model, "device.threads": arguments.threads}
    if arguments.draft is not None:
        given |= {"speculation.model": arguments.draft, "speculation.drafters": '["model"]'}
    else:
        given |= {"speculation.head": arguments.head, "speculation.drafters": '["head"]'}
    return read_settings(None, [f"{key}={value}" for key, value in given.items()])


def decoded(
    loaded: LoadedModel, samples: list[Sample], rate: float, arguments: argparse.Namespace
) -> Iterator[tuple[Sample, DecodedTwice]]:
    """Yields each answer, decoded by an engine whose guesses are right at the rate."""
    options = loaded.engine_options()
    options.draft_right_share = rate
    options.fixed_depth = arguments.always
    with closing(EngineClient(_core.Engine(loaded.model, options))) as client:
        most = loaded.config.settings.speculation.max_draft_tokens
        bench = GuessBench(EngineRuns(client, loaded.model.n_tokens), arguments.threads, most, 1, lambda _: None)
        # imp guesses only where it knows what rows cost, and a server has learned that from its first answers.
        bench.decode_twice(samples[:1], arguments.tokens, guesses_first=True)
        for number, sample in enumerate(samples):
            found = bench.decode_twice([sample], arguments.tokens, guesses_first=number % 2 == 1)
            yield sample, found
