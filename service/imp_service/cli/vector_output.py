"""What commands print of vectors and rankings."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.failure import warning_line

if TYPE_CHECKING:
    from array import array

    from imp_service.api.vectors import Ranking, Vectors


def numbers_text(vector: "array[float]", separator: str) -> str:
    """Decimals that are exactly these 32-bit floats: nine digits identify one."""
    return separator.join([f"{number:.9g}" for number in vector])


def write_vectors(vectors: "Vectors") -> None:
    """A line for each text."""
    for vector in vectors:
        sys.stdout.write(f"{numbers_text(vector, ' ')}\n")


def vectors_json(model: str, parts: "Sequence[Vectors]") -> str:
    """One JSON object."""
    first = {
        "model": model,
        "dimensions": parts[0].width,
        "prompt_tokens": sum(part.prompt_tokens for part in parts),
        "truncated": truncated_in(parts),
    }
    rows = ", ".join(f"[{numbers_text(vector, ', ')}]" for part in parts for vector in part)
    return f'{json.dumps(first, ensure_ascii=False)[:-1]}, "vectors": [{rows}]}}\n'


def write_array(path: Path, parts: "Sequence[Vectors]") -> None:
    """A file that `numpy.load` reads: a row for each text, with the exact bits."""
    import numpy as np  # imported here: it takes long

    whole = np.concatenate(parts) if parts else np.empty((0, 0), np.float32)
    with path.open("wb") as file:  # numpy.save adds a suffix to a path
        np.save(file, whole)


def truncated_in(parts: "Sequence[Vectors]") -> list[int]:
    """The texts of all parts that were cut, by their indices."""
    found, first = [], 0
    for part in parts:
        found += [first + i for i in part.truncated]
        first += len(part)
    return found


def write_ranking(ranking: "Ranking", documents: Sequence[str]) -> None:
    """A line for each document: its score, its number, its text."""
    for each in ranking:
        sys.stdout.write(f"{each.score:.6f}  {each.index}  {documents[each.index]}\n")


def ranking_json(model: str, ranking: "Ranking", documents: Sequence[str]) -> str:
    """One JSON object."""
    found = {
        "model": model,
        "prompt_tokens": ranking.prompt_tokens,
        "truncated": list(ranking.truncated),
        "results": [{"index": each.index, "score": each.score, "document": documents[each.index]} for each in ranking],
    }
    return json.dumps(found, ensure_ascii=False) + "\n"


def warn_of_cuts(truncated: Sequence[int], what: str) -> None:
    """Says on stderr how many inputs were cut."""
    if truncated:
        count = len(truncated)
        print(warning_line(f"{count} {what}{'' if count == 1 else 's'} did not fit and was cut"), file=sys.stderr)
