"""The tokens of one streamed answer of OpenAI's API: when each event came, and how many tokens were in it."""

import json
from typing import Any

from .measure import RequestResult

DONE = b"[DONE]"


class StreamFailure(Exception):
    """The stream ended with an error, or holds what OpenAI's API never sends."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(reason)


class StreamedTokens:
    """Counts by the `usage` of each event where the server sends it (`continuous_usage_stats`).

    If only the last event has a usage, its tokens are spread over the events with text, or all came with it if no
    event has text. Without any usage an event counts as one token.
    """

    def __init__(self, result: RequestResult) -> None:
        self._result = result
        self._texts: list[float] = []  # when events with text came
        self._usage_at = 0.0  # when the last usage came
        self._n_counted = 0  # tokens by the last usage
        self._n_arrived = 0  # how many of them `arrivals` has
        self._is_continuous = False
        self._is_done = False

    def take(self, when: float, data: bytes) -> None:
        if data == DONE:
            self._is_done = True
            return
        event = _object(data)
        if event.get("error"):
            raise StreamFailure(reason_of(event["error"]) or "STREAM_FAILED")
        choices, usage = event.get("choices") or [], event.get("usage")
        has_text = any(map(_has_text, choices))
        if has_text:
            self._texts.append(when)
        if isinstance(usage, dict) and usage:
            self._is_continuous = self._is_continuous or (has_text and len(self._texts) == 1)
            self._count(when, usage)

    def _count(self, when: float, usage: dict[str, Any]) -> None:
        n_tokens = int(usage.get("completion_tokens") or 0)
        if self._is_continuous and n_tokens > self._n_arrived:
            self._result.arrivals.append((when, n_tokens - self._n_arrived))
            self._n_arrived = n_tokens
        self._n_counted, self._usage_at = n_tokens, when
        self._result.prompt_tokens = int(usage.get("prompt_tokens") or 0)

    def end(self) -> None:
        """Ends the answer, after its last byte."""
        if not self._is_continuous:
            self._spread()
        if not self._is_done:
            raise StreamFailure("STREAM_BROKEN")

    def _spread(self) -> None:
        """Distributes the tokens of the last usage over the times when tokens can have come."""
        n_tokens = self._n_counted or len(self._texts)
        self._result.is_counted = self._n_counted > 0
        times = self._texts or [self._usage_at]
        n = len(times)
        shares = [n_tokens * (i + 1) // n - n_tokens * i // n for i in range(n)]
        self._result.arrivals += [(when, share) for when, share in zip(times, shares, strict=True) if share]


def reason_of(error: object) -> str:
    """The code of an error in the spelling of the error table, such as QUEUE_FULL; empty if there is none."""
    found = (error.get("code"), error.get("type")) if isinstance(error, dict) else ()
    return next((code.upper() for code in found if code and isinstance(code, str)), "")


def _object(data: bytes) -> dict[str, Any]:
    try:
        event = json.loads(data)
    except ValueError:
        raise StreamFailure("STREAM_BROKEN") from None
    if not isinstance(event, dict):
        raise StreamFailure("STREAM_BROKEN")
    return event


def _has_text(choice: dict[str, Any]) -> bool:
    if "text" in choice:
        return bool(choice["text"])
    delta = choice.get("delta") or {}
    return any(delta.get(channel) for channel in ("content", "reasoning_content", "reasoning", "tool_calls"))
