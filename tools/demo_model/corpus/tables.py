"""Reads the data files of the corpus. A section begins with `## name`; empty lines separate its paragraphs."""

from functools import cache
from pathlib import Path

_DATA = Path(__file__).parent / "data"


@cache
def sections(file: str) -> dict[str, list[list[str]]]:
    """Returns section name -> paragraphs -> lines, in file order; the characters \\n in a line become a line end."""
    found: dict[str, list[list[str]]] = {}
    for block in (_DATA / f"{file}.txt").read_text(encoding="utf-8").split("\n## ")[1:]:
        name, _, body = block.partition("\n")
        paragraphs = [paragraph.splitlines() for paragraph in body.strip().split("\n\n")]
        found[name] = [[line.replace("\\n", "\n") for line in paragraph] for paragraph in paragraphs]
    return found


def words(name: str) -> list[str]:
    """Returns a list of words.txt."""
    return [word for line in sections("words")[name][0] for word in line.split(", ")]


def facts(name: str) -> dict[str, list[str]]:
    """Returns a table of facts.txt: first field -> the other fields."""
    rows = (line.split(" | ") for line in sections("facts")[name][0])
    return {first: rest for first, *rest in rows}


def pairs(name: str) -> dict[str, str]:
    """Returns a table of facts.txt that has two fields in each row."""
    return {first: second for first, (second,) in facts(name).items()}


def template(name: str) -> str:
    """Returns a text template of descriptions.txt."""
    return " ".join(sections("descriptions")[name][0])
