"""Constraints that cost too much end in time with the documented error, and other requests are served meanwhile."""

from __future__ import annotations

import json
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from imp_service.pb import types_pb2
from imp_service.text.constraints.trial import TrialCompiler
from support.calls.failed_calls import failed
from support.calls.generations import byte_tokens, in_one, streamed, vocabulary
from support.run.patience import HANGS_AFTER
from support.run.quick_run import Repeats
from support.servers.served import Served, ask

COSTLY = [
    types_pb2.Constraint(json_schema=json.dumps(schema))
    for schema in (
        {"type": "integer", "multipleOf": 99_999_989},
        {"type": "string", "allOf": [{"pattern": f".*{chr(97 + i)}.*"} for i in range(20)]},
    )
]
LONG_STRING = types_pb2.Constraint(
    json_schema=json.dumps(
        {"type": "object", "properties": {"x": {"type": "string", "maxLength": 500}}, "required": ["x"]}
    )
)


class HeldCompiler:
    """Holds whoever compiles a constraint, until it is opened."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._has_begun, self._is_open = threading.Event(), threading.Event()
        compile_it = TrialCompiler.compile

        def compile_late(compiler: TrialCompiler, *arguments: Any) -> Any:
            self._has_begun.set()
            assert self._is_open.wait(HANGS_AFTER)
            return compile_it(compiler, *arguments)

        patch.setattr(TrialCompiler, "compile", compile_late)

    def wait(self) -> None:
        """Waits until a constraint is being compiled."""
        assert self._has_begun.wait(HANGS_AFTER)

    def open(self) -> None:
        """Lets everyone compile."""
        self._is_open.set()


@pytest.mark.long
def test_txt_31_t53_a_costly_constraint_is_refused_and_nobody_waits_for_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheap = types_pb2.Constraint(choices=types_pb2.Choices(values=["yes", "no"]))
    assert in_one(served, ask("is it?", 20, constraint=cheap)).output.text in ("yes", "no")

    def refuse(constraint: types_pb2.Constraint) -> None:
        call = failed(lambda: in_one(served, ask("x", 20, constraint=constraint)))
        assert (call.code, call.reason) == ("INVALID_ARGUMENT", "FIELD_INVALID")
        assert call.paths == ["request.constraint.json_schema"]
        assert "to compile" in call.message

    held = HeldCompiler(monkeypatch)
    with ThreadPoolExecutor(4) as callers:
        refused = [callers.submit(refuse, constraint) for constraint in COSTLY * 2]
        try:
            held.wait()
            for _ in range(3):
                assert in_one(served, ask("is it?", 20, constraint=cheap)).output.text in ("yes", "no")
                assert in_one(served, ask("once upon a time " * 90, 2)).output.reason == "MAX_TOKENS"
            assert not any(call.done() for call in refused)
        finally:
            held.open()
        for call in refused:
            call.result()


@pytest.mark.long
def test_txt_32_requests_of_one_long_string_schema_go_on(served: Served, repeats: Repeats) -> None:
    for seed in range(repeats(100)):
        sampling = types_pb2.SamplingOptions(temperature=1.5, seed=seed)
        result = streamed(served, ask("tell me", 12, sampling=sampling, constraint=LONG_STRING))
        assert result.output.reason in ("MAX_TOKENS", "STOP")
        assert result.output.text.startswith("{")


@pytest.mark.long
@pytest.mark.parametrize("kind", ["json_schema", "json_object"])
def test_txt_34_unbounded_white_space_is_asked_for(served: Served, kind: str) -> None:
    """A model that prefers blanks writes one between two tokens by default, and more with unbounded_whitespace."""
    tokens = [vocabulary().token_bytes(token) for token in range(vocabulary().vocab_size)]
    blanks = {token: 100.0 for token, text in enumerate(tokens) if text and not text.strip(b" ")}
    blanks[byte_tokens()[ord("{")]] = 100.0
    sampling = types_pb2.SamplingOptions(temperature=0.0, logit_bias=blanks)

    def n_blanks(unbounded: bool) -> int:
        constraint = types_pb2.Constraint(unbounded_whitespace=unbounded)
        if kind == "json_schema":
            constraint.json_schema = '{"type": "object"}'
        else:
            constraint.json_object.SetInParent()
        text = in_one(served, ask("x", 100, sampling=sampling, constraint=constraint)).output.text
        assert text.startswith("{")
        return len(text) - len(text[1:].lstrip(" ")) - 1

    assert n_blanks(False) == 1
    assert n_blanks(True) > 33
