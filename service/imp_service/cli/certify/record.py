"""The record of a certificate, as JSON and as a table."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from imp_service.cli.certify.trial import PairedAnswer, pairs_of
from imp_service.cli.certify.verdict import FirstToken, faults
from imp_service.cli.output import write_number_table

if TYPE_CHECKING:
    from imp_service.config.settings import SparsePrefillSettings

# Version of the JSON: raised when a field changes its meaning.
VERSION = 1


@dataclass(frozen=True, slots=True)
class HashedModel:
    """A model by its name, and by the hash of its files."""

    name: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Record:
    """What was measured of a model with a draft model, at some settings."""

    model: HashedModel
    draft: HashedModel
    settings: SparsePrefillSettings
    answers: Sequence[PairedAnswer]
    times: Sequence[FirstToken]

    @property
    def faults(self) -> list[str]:
        """Why the pair does not pass; empty: it passes."""
        return faults(pairs_of(self.answers), self.times)

    def as_json(self) -> dict[str, Any]:
        """One object, with every measurement."""
        from imp_service import __version__

        pairs, settings = pairs_of(self.answers), self.settings
        return {
            "version": VERSION,
            "imp": __version__,
            "certified": not self.faults,
            "faults": self.faults,
            "model": {"name": self.model.name, "sha256": self.model.sha256},
            "draft": {"name": self.draft.name, "sha256": self.draft.sha256},
            "settings": {name: getattr(settings, name) for name in ("keep", "backbone", "anchors")},
            "points": pairs.points,
            "least_points": pairs.least_points,
            "kinds": [_kind_as_json(kind, answers) for kind, answers in self._by_kind()],
            "first_token": [
                {
                    "concurrency": each.concurrency,
                    "prompt_tokens": each.prompt_tokens,
                    "seconds_whole": each.whole,
                    "seconds_part": each.part,
                }
                for each in self.times
            ],
        }

    def write(self, out: TextIO) -> None:
        """Two tables and the verdict."""
        pairs = pairs_of(self.answers)
        rows = [_row(kind, answers) for kind, answers in (*self._by_kind(), ("all", self.answers))]
        write_number_table(out, ("questions", "number", "tokens", "evaluated", "right, whole", "right, in part"), rows)
        out.write(f"gain {pairs.points:+.1f} points, with 95 % confidence at least {pairs.least_points:+.1f}\n\n")
        times = [
            (
                str(each.concurrency),
                str(each.prompt_tokens),
                f"{each.whole:.2f}",
                f"{each.part:.2f}",
                f"{each.speed_up:.2f} ×",
            )
            for each in self.times
        ]
        write_number_table(
            out, ("at once", "tokens", "first token, whole: s", "in part: s", "faster"), times, n_words=0
        )
        out.write(f"\n{'certified' if not self.faults else 'not certified: ' + '; '.join(self.faults)}\n")

    def _by_kind(self) -> list[tuple[str, list[PairedAnswer]]]:
        groups = itertools.groupby(self.answers, lambda each: each.question.kind)
        return [(kind, list(answers)) for kind, answers in groups]


def _row(kind: str, answers: Sequence[PairedAnswer]) -> tuple[str, ...]:
    pairs = pairs_of(answers)
    tokens, evaluated = (
        f"{sum(getattr(each, name) for each in answers) / len(answers):.0f}"
        for name in ("prompt_tokens", "evaluated_tokens")
    )
    right = (pairs.both + pairs.whole_alone, pairs.both + pairs.part_alone)
    return (kind, str(pairs.n), tokens, evaluated, *map(str, right))


def _kind_as_json(kind: str, answers: Sequence[PairedAnswer]) -> dict[str, Any]:
    pairs = pairs_of(answers)
    return {
        "kind": kind,
        "questions": pairs.n,
        "right_both": pairs.both,
        "right_whole_alone": pairs.whole_alone,
        "right_part_alone": pairs.part_alone,
        "prompt_tokens": [each.prompt_tokens for each in answers],
        "evaluated_tokens": [each.evaluated_tokens for each in answers],
    }
