"""Constraints through gRPC: one without any rule; endings, stop strings and biases that work against a constraint."""

from __future__ import annotations

import json
from typing import Any

import pytest

from imp_service.pb import types_pb2
from support.calls.failed_calls import failed
from support.calls.generations import Result, in_one, streamed, vocabulary
from support.servers.served import Served, ask

PROMPT = "the cat sat on the mat"
SCHEMA = json.dumps(
    {
        "type": "object",
        "properties": {"name": {"enum": ["alice", "bob"]}, "ok": {"type": "boolean"}},
        "required": ["name", "ok"],
        "additionalProperties": False,
    }
)
OBJECT = types_pb2.Constraint(json_schema=SCHEMA)
MEMBERS = [{"name": name, "ok": ok} for name in ("alice", "bob") for ok in (True, False)]
BOTH = pytest.mark.parametrize("run", [streamed, in_one])


def constrained(served: Served, run: Any, *, bias: dict[int, float] | None = None, **stop: Any) -> Result:
    sampling = types_pb2.SamplingOptions(temperature=0.0, logit_bias=bias or {})
    options = types_pb2.StopOptions(**{"max_tokens": 200, **stop})
    result: Result = run(served, ask(PROMPT, None, sampling=sampling, stop=options, constraint=OBJECT))
    return result


@BOTH
def test_t44_a_constraint_that_says_nothing_is_refused(served: Served, run: Any) -> None:
    call = failed(lambda: run(served, ask(PROMPT, 4, constraint=types_pb2.Constraint())))
    member = "request." if run is in_one else ""
    assert (call.code, call.reason, call.paths) == ("INVALID_ARGUMENT", "FIELD_INVALID", [f"{member}constraint"])


@pytest.mark.long
@BOTH
def test_t49_a_constraint_that_one_token_cannot_satisfy_ends_at_the_limit(served: Served, run: Any) -> None:
    whole = constrained(served, run).output
    assert whole.reason == "STOP" and json.loads(whole.text) in MEMBERS
    first = constrained(served, run, max_tokens=1).output
    assert (first.reason, len(first.ids)) == ("MAX_TOKENS", 1)
    assert first.ids == whole.ids[:1] and whole.text.startswith(first.text)


@BOTH
def test_t49_a_stop_string_inside_the_json_ends_it(served: Served, run: Any) -> None:
    whole = constrained(served, run).output
    before, _, _ = whole.text.partition('"ok"')
    assert before != whole.text
    cut = constrained(served, run, strings=['"ok"']).output
    assert (cut.reason, cut.match, cut.text) == ("STOP", ("text", '"ok"'), before)


@pytest.mark.long
@BOTH
def test_t49_a_bias_against_what_the_constraint_wants_does_not_break_it(served: Served, run: Any) -> None:
    """Every token that begins an object gets a bias of -100. One is drawn all the same: nothing else is allowed."""
    begins = [i for i in range(vocabulary().vocab_size) if vocabulary().token_bytes(i).startswith(b"{")]
    biased = constrained(served, run, bias=dict.fromkeys(begins, -100.0)).output
    assert biased.ids[0] in begins
    assert biased.reason == "STOP" and json.loads(biased.text) in MEMBERS
