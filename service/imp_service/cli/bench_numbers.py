"""Numbers on the command line of imp bench; each function is an argparse type."""

from argparse import ArgumentTypeError


def numbers(text: str) -> tuple[int, ...]:
    """ "512,2048"."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 8 for part in parts):
        raise ArgumentTypeError(f"{text}: expected whole numbers with commas between")
    return tuple(dict.fromkeys(int(part) for part in parts))


def counts(text: str) -> tuple[int, ...]:
    found = numbers(text)
    if 0 in found:
        raise ArgumentTypeError(f"{text}: expected numbers of at least 1")
    return found


def count(text: str) -> int:
    found = counts(text)
    if len(found) != 1:
        raise ArgumentTypeError(f"{text}: expected one number")
    return found[0]
