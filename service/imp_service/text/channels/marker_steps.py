"""How tokens spell a marker: for each token, how many bytes of it the outputs end with before and after the token."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imp_service.text.channels.pattern import BLANKS

# (bytes before, token, bytes after)
Step = tuple[int, int, int]


def steps_anywhere(marker: bytes, token_bytes: Sequence[bytes]) -> list[Step]:
    """The steps to a marker after any text. A token without a step counts as after 0 bytes, or leads there."""
    found = {(0, token): n_after for token, n_after in _first_steps(marker, token_bytes)}
    for n_before in range(1, len(marker)):
        of_border = {key[1]: n for key, n in found.items() if key[0] == _border(marker[:n_before]) != 0}
        found |= {(n_before, token): n_after for token, n_after in of_border.items()}
        found |= {(n_before, token): n for token, n in _next_steps(marker, n_before, token_bytes)}
    return [(n_before, token, n_after) for (n_before, token), n_after in sorted(found.items())]


def steps_at_start(marker: bytes, token_bytes: Sequence[bytes]) -> list[Step]:
    """The steps to a marker that only blanks may precede. A token without a step ends the search."""
    found: list[Step] = []
    for token, data in enumerate(token_bytes):
        rest = data.lstrip(BLANKS)
        if data and marker.startswith(rest[: len(marker)]):
            found.append((0, token, min(len(rest), len(marker))))
    for n_before in range(1, len(marker)):
        found += [(n_before, token, n) for token, n in _next_steps(marker, n_before, token_bytes)]
    return found


def _first_steps(marker: bytes, token_bytes: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Of the tokens that have the marker, or end with a part of it."""
    parts = [marker[:n] for n in range(len(marker) - 1, 0, -1)]
    endings = tuple(parts)
    for token, data in enumerate(token_bytes):
        if marker in data:
            yield token, len(marker)
        elif data.endswith(endings):
            yield token, next(len(part) for part in parts if data.endswith(part))


def _next_steps(marker: bytes, n_before: int, token_bytes: Sequence[bytes]) -> Iterator[tuple[int, int]]:
    """Of the tokens that go on with the marker after its first bytes."""
    rest = marker[n_before:]
    parts = {rest[:n] for n in range(1, len(rest))}
    for token, data in enumerate(token_bytes):
        if data in parts:
            yield token, n_before + len(data)
        elif data.startswith(rest):
            yield token, len(marker)


def _border(text: bytes) -> int:
    """The length of the longest proper beginning of a text that is also its end."""
    return next((n for n in range(len(text) - 1, 0, -1) if text.endswith(text[:n])), 0)
