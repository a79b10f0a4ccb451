"""The limits of requests are written where client authors read: in the protos' comments."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imp_service.generation import validate
from imp_service.tables import LIMITS

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


RANGES = {
    **{("SamplingOptions", name): bounds for name, bounds in validate.SAMPLING_BOUNDS.items() if not bounds.whole},
    **{("DryOptions", name): validate.DRY_BOUNDS[name] for name in ("multiplier", "base", "allowed_length")},
    ("SamplingOptions", "logit_bias"): validate.BIAS,
}
COUNTS = {
    ("GenerateRequest", "num_sequences"): f"1 to {LIMITS.sequences}",
    ("StopOptions", "strings"): f"At most {validate.MAX_STOP_STRINGS}, each of 1 to {validate.MAX_STOP_STRING_BYTES} ",
    ("StopOptions", "token_ids"): f"At most {LIMITS.stop_tokens}.",
    ("SamplingOptions", "logit_bias"): f"At most {LIMITS.logit_biases} entries",
    ("DryOptions", "breakers"): f"At most {validate.MAX_BREAKERS}, each of 1 to {validate.MAX_BREAKER_BYTES} bytes",
    ("CacheOptions", "salt"): f"At most {validate.MAX_SALT_BYTES} bytes",
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
