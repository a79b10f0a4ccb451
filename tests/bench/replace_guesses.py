"""Measures guesses of a draft model or head that are right at a given rate: random weights never guess right.

`python tests/bench/replace_guesses.py FILE --draft FILE --replay LINES --rates 0.75,0.5,0.1`. The drafter guesses as it
always does, so its work is real. Then each guess is replaced: by the token of the known answer with the given
probability, by another token otherwise. Each answer is decoded without and with guesses in turn. imp learns from the
real time of steps whether to guess. Needs the testing extension.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# Replaces this folder.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from imp_service import _core, _testing  # noqa: E402
from imp_service.cli.arguments import positive_integer  # noqa: E402
from imp_service.config import load as load_config  # noqa: E402
from imp_service.core.bench.guesses import Sample, read_samples  # noqa: E402
from imp_service.core.load import LoadedModel, load  # noqa: E402
from support.script_engine import TurnedEngine  # noqa: E402

CACHE_TOKENS = 4096


def main() -> None:
    """Prints a line of JSON for each answer and rate, and then the median gain of each rate."""
    arguments = parsed()
    loaded = load(settings_of(arguments))
    samples = read_samples(arguments.replay, None, loaded.model.n_tokens)[: arguments.answers]
    bench = ReplacedGuesses(loaded, always=arguments.always)
    # imp guesses only where it knows what rows cost, and a server has learned that from its first answers.
    bench.decode_both(samples[0], arguments.tokens, 1.0, 0)
    for rate in arguments.rates:
        gains = []
        for number, sample in enumerate(samples):
            seconds, drafted, accepted = bench.decode_both(sample, arguments.tokens, rate, number)
            gains.append(seconds[0] / seconds[1])
            line = {"rate": rate, "kind": sample.kind, "seconds_without": seconds[0], "seconds_with": seconds[1]}
            print(json.dumps({**line, "gain": gains[-1], "drafted": drafted, "accepted": accepted}), flush=True)
        spread = f"{min(gains):.2f} – {max(gains):.2f}"
        print(f"rate {rate}: median gain {statistics.median(gains):.2f} ({spread})", flush=True)


def parsed() -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    return parser.parse_args()


def rates(text: str) -> list[float]:
    """Returns the numbers of a list with commas."""
    return [float(word) for word in text.split(",")]


def settings_of(arguments: argparse.Namespace) -> Any:
    """Returns settings with the drafter alone."""
    given = {"model.path": arguments.model, "device.threads": arguments.threads}
    if arguments.draft is not None:
        given |= {"speculation.model": arguments.draft, "speculation.drafters": '["model"]'}
    else:
        given |= {"speculation.head": arguments.head, "speculation.drafters": '["head"]'}
    return load_config(None, [f"{key}={value}" for key, value in given.items()])


class ReplacedGuesses:
    """An engine whose guesses are replaced, with the real clock."""

    def __init__(self, loaded: LoadedModel, *, always: bool) -> None:
        model = loaded.model
        options = _core.EngineOptions(
            n_blocks=model.n_blocks,
            max_context=model.max_context,
            drafters=loaded.config.settings.speculation.drafters,
            max_running=1,
            fixed_depth=always,
        )
        self._engine = TurnedEngine(_testing.ManualModelEngine(model, options, None, self._revise))
        self._engine.core.real_time = True
        self._most = loaded.config.settings.speculation.max_draft_tokens
        self._answer: Sequence[int] = ()
        self._n_prompt = 0
        self._rate = 0.0
        self._random = random.Random(0)

    def decode_both(
        self, sample: Sample, n_tokens: int, rate: float, number: int
    ) -> tuple[tuple[float, float], int, int]:
        """Seconds without and with guesses, the guesses and the right ones among them. `number` decides the order."""
        self._answer, self._n_prompt = sample.answer[:n_tokens], len(sample.prompt)
        self._rate, self._random = rate, random.Random(number)
        session = self._engine.open(kind="session", bypass_prefix=True)
        self._engine.step(session, sample.prompt[:-1], max_outputs=0)
        seconds: dict[int, float] = {}
        drafted, accepted = 0, 0
        for most in [(0, self._most), (self._most, 0)][number % 2]:
            end = self._decode(session, sample.prompt[-1], most)
            seconds[most] = end.timings.decode_ns * 1e-9
            drafted, accepted = drafted + end.drafts.n_drafted, accepted + end.drafts.n_accepted
        self._ask("close", session)
        return (seconds[0], seconds[self._most]), drafted, accepted

    def _decode(self, session: int, last: int, most: int) -> Any:
        """Decodes the answer after the last token of the prompt. Afterwards the session holds what it held before."""
        limits = {"max_outputs": len(self._answer), "ends_at_eos": False}
        ticket = self._engine.run(session, [last], forced=list(self._answer), max_draft_tokens=most, **limits)
        self._engine.turn_until_idle()
        self._ask("truncate", session, self._n_prompt - 1)
        return self._engine.finished(ticket)

    def _ask(self, command: str, *arguments: int) -> None:
        ticket = self._engine.command(command, *arguments)
        self._engine.turn_until_idle()
        self._engine.done(ticket)

    def _revise(self, sequence: int, tokens: list[int], guesses: list[int]) -> list[int]:
        """The guesses after `tokens`, each right at the rate."""
        following = self._answer[len(tokens) - self._n_prompt :]
        return [
            right if self._random.random() < self._rate else (right + 1) % 1000 for right in following[: len(guesses)]
        ]


if __name__ == "__main__":
    main()
