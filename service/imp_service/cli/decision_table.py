"""A decision on the terminal: its labels, the most likely first."""

import json
import sys
from typing import TYPE_CHECKING

from imp_service.cli.output import write_number_table
from imp_service.cli.terminal import print_note

if TYPE_CHECKING:
    from imp_service.api.decisions import Decision

# Further labels share a line.
MOST_LINES = 10
# An output begins with a label less often than this: the model would rather say something else.
LEAST_MASS = 0.5


def write_decision(decision: "Decision") -> None:
    """The table, and on stderr whether the model would rather say something else."""
    ordered = sorted(decision.labels, key=lambda each: -each.probability)
    rows = [[each.label, f"{each.probability:.4f}"] for each in ordered[:MOST_LINES]]
    if others := ordered[MOST_LINES:]:
        rows.append([f"({len(others)} others)", f"{sum(each.probability for each in others):.4f}"])
    if decision.mean is not None:
        rows.append(["(mean)", f"{decision.mean:.4f}"])
    write_number_table(sys.stdout, ["label", "probability"], rows)
    sys.stdout.flush()
    if decision.mass < LEAST_MASS:
        print_note(f"— the model would begin its answer with one of these labels with probability {decision.mass:.2g}.")


def write_json(decision: "Decision", model: str) -> None:
    """One object."""
    fields = {
        "model": model,
        "label": decision.label,
        "probabilities": decision.probabilities,
        "mass": decision.mass,
        "confidence": decision.confidence,
        **({} if decision.mean is None else {"mean": decision.mean}),
        "prompt_tokens": decision.usage.prompt_tokens,
    }
    sys.stdout.write(json.dumps(fields, ensure_ascii=False) + "\n")
