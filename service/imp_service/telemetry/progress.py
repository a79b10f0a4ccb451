"""Tells the front of this process whether callers get further (`imp serve --survive`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from imp_service.telemetry.call_record import CallFacts

# Seconds between two reports of complete answers.
ANSWERS_EVERY = 1.0


class ProgressReports:
    """What this process knows of the progress of its callers. Nothing is reported without a front.

    Tokens that the engine draws are not counted: a process that ends at once may not have sent them. A caller that goes
    on says how many it has got, and one that has a complete answer needs no more.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._send: Callable[[Mapping[str, object]], None] | None = None
        self._not_before = -1e9

    def send_by(self, send: Callable[[Mapping[str, object]], None]) -> None:
        """From now on, `send` gets each report. It must not block."""
        self._send = send

    def resumed(self, stream: str, n_told: int) -> None:
        """A stream or a session goes on, and its caller has so many tokens. `stream` names it over all its calls."""
        if self._send is not None:
            self._send({"stream": stream, "told": n_told})
            self._not_before = -1e9  # the next complete answer may be that of this stream

    def __call__(self, facts: CallFacts) -> None:
        """A call has ended. It is an answer if it gave a whole generation, or vectors: a session's step is a token."""
        is_answer = facts.outcome == "finished" and (facts.reasons or facts.n_inputs)
        if self._send is not None and is_answer and self._clock() >= self._not_before:
            self._not_before = self._clock() + ANSWERS_EVERY
            self._send({"answered": True})
