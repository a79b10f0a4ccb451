"""The limits of requests are written where client authors read: in the protos' comments."""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

import pytest

from imp_service.api.facts import facts_of
from imp_service.api.options import CacheOptions, DryOptions, StopOptions
from imp_service.api.rules import Text, Texts
from imp_service.generation.limits import BOUNDS
from imp_service.tables import LIMITS, SAMPLER_FIELDS

PROTOS = Path(__file__).parents[3] / "proto" / "imp" / "v1"


def comment_of(message: str, field: str) -> str:
    """Returns the comment right before a field, on one line."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in sorted(PROTOS.glob("*.proto")))
    (body,) = re.findall(rf"^message {message} {{\n(.*?)^}}", text, re.DOTALL | re.MULTILINE)
    before = re.split(rf"^ +[\w<>, ]+ {field} = \d+;", body, maxsplit=1, flags=re.MULTILINE)
    assert len(before) == 2, f"{message} has no {field}"
    lines: list[str] = []
    for line in reversed(before[0].rstrip().splitlines()):
        if not line.strip().startswith("//"):
            break
        lines.insert(0, line.strip().removeprefix("//").strip())
    return " ".join(lines)


def texts_of(kind: type, name: str) -> str:
    """Returns how a comment writes the rule of a list of texts."""
    rule = rule_of(kind, name)
    assert isinstance(rule, Texts)  # narrows
    return f"At most {rule.counts[1]}, each of {rule.each.least} to {rule.each.most} bytes"


def bytes_of(kind: type, name: str) -> str:
    """The same for one text."""
    rule = rule_of(kind, name)
    assert isinstance(rule, Text)  # narrows
    return f"At most {rule.most} bytes"


def rule_of(kind: type, name: str) -> object:
    return next(facts_of(field).rule for field in fields(kind) if field.name == name)


RANGES = {
    **{("SamplingOptions", name): BOUNDS[name] for name in SAMPLER_FIELDS if not BOUNDS[name].whole},
    **{("DryOptions", name): BOUNDS[f"dry.{name}"] for name in ("multiplier", "base", "allowed_length")},
    ("SamplingOptions", "logit_bias"): BOUNDS["logit_bias"],
}
COUNTS = {
    ("GenerateRequest", "num_sequences"): f"1 to {LIMITS.sequences}",
    ("StopOptions", "strings"): texts_of(StopOptions, "strings"),
    ("StopOptions", "token_ids"): f"At most {LIMITS.stop_tokens}.",
    ("SamplingOptions", "logit_bias"): f"At most {LIMITS.logit_biases} entries",
    ("DryOptions", "breakers"): texts_of(DryOptions, "breakers"),
    ("CacheOptions", "salt"): bytes_of(CacheOptions, "salt"),
}


@pytest.mark.parametrize(("message", "field"), RANGES)
def test_rpc_6_each_range_is_written_at_its_field(message: str, field: str) -> None:
    bounds = RANGES[message, field]
    written = f"{'(' if bounds.above else '['}{bounds.low:g}, {bounds.high:g}]"
    assert written in comment_of(message, field)


@pytest.mark.few(3)
@pytest.mark.parametrize(("message", "field"), COUNTS)
def test_rpc_6_each_count_is_written_at_its_field(message: str, field: str) -> None:
    assert COUNTS[message, field] in comment_of(message, field)
