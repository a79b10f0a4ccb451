"""The line after an answer: how much it was, how fast it came, and why it ended where the model did not end it."""

_ENDS = {
    "max_tokens": "ended by the limit of tokens (--max-tokens)",
    "context_full": "ended by the context (-c gives more)",
    "time_limit": "ended by the time limit",
    "aborted": "ended by the server",
    "cancelled": "cancelled",
}


def summary_text(n_tokens: int, decode_seconds: float | None, first_token_seconds: float | None, reason: str) -> str:
    """As "96 tokens, 310 tok/s, first token 12 ms"."""
    parts = [f"{n_tokens} token{'s' if n_tokens != 1 else ''}"]
    # The first token comes with the prompt's evaluation: the rest is what decoding took.
    if decode_seconds and n_tokens > 1:
        parts.append(f"{(n_tokens - 1) / decode_seconds:.0f} tok/s")
    if first_token_seconds is not None:
        parts.append(f"first token {milliseconds(first_token_seconds)}")
    if reason != "stop":
        parts.append(_ENDS.get(reason, reason))
    return ", ".join(parts)


def milliseconds(seconds: float) -> str:
    return f"{1000 * seconds:.{1 if seconds < 0.01 else 0}f} ms"
