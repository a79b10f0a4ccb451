"""How the objects of the Python API show themselves: first what people look for, on one line."""

from __future__ import annotations

MOST_SHOWN = 200


def scaled(number: int, step: int, units: tuple[str, ...], gap: str) -> str:
    """A number with three digits, in the largest unit below it. Each unit is `step` of the one before."""
    value, unit = float(number), 0
    # 999.7 of a unit would print as 1000: it is 1.0 of the next.
    while unit + 1 < len(units) and value >= step - 0.5:
        value, unit = value / step, unit + 1
    digits = f"{value:.0f}" if unit == 0 or value >= 99.95 else f"{value:.1f}"
    return f"{digits}{gap}{units[unit]}"


def count_text(count: int) -> str:
    """For example "3.7M": a model's parameters."""
    return scaled(count, 1000, ("", "k", "M", "B", "T"), "")


def tokens_text(count: int) -> str:
    """A number of tokens."""
    return f"{count} token{'' if count == 1 else 's'}"


def model_text(name: str, parameters: int, weight_format: str, max_context: int) -> str:
    """A model's name and size."""
    size = f"{count_text(parameters)} parameters, {weight_format.upper()}"
    return f"{name}: {size}, context of {tokens_text(max_context)}"


def session_text(position: int, seed: int, *, is_open: bool) -> str:
    """The state of a session, and what can be done with it."""
    held = f"{tokens_text(position)} held, seed {seed}"
    return f"{held}; prefill(), decode_step() and generate() go on" if is_open else f"{held}; closed"


def quoted(text: str) -> str:
    """The beginning of a text, as Python writes it."""
    return repr(text if len(text) <= MOST_SHOWN else f"{text[:MOST_SHOWN]}…")


def html_of(text: str, remark: str) -> str:
    """A text and a remark on it for a notebook, as they are: a model's output is nobody's HTML."""
    from html import escape  # imported here: commands need it not

    return (
        f'<div style="white-space: pre-wrap">{escape(text)}</div>'
        f'<div style="font-size: smaller; opacity: 0.6">{escape(remark)}</div>'
    )
