"""Turns documents into token arrays on disk, and token arrays into training batches that depend on the step alone."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from tokenizers import Tokenizer

from .corpus.documents import Part
from .vocabulary import END_OF_TEXT, special_id

# Share of the training windows that begin in each part: about 60 % generated text, and 20 % each of the others.
EARLY_SHARES = {
    "stories": 0.28, "descriptions": 0.08, "chat": 0.24, "austen": 0.20, "wordnet": 0.20, "questions": 0.0,
}  # fmt: skip
LATE_SHARES = {
    "stories": 0.18, "descriptions": 0.06, "chat": 0.12, "austen": 0.20, "wordnet": 0.18, "questions": 0.26,
}  # fmt: skip
LATE_BEGINS = 0.4  # share of all steps after which LATE_SHARES apply: more answers depend on the question
# The first sentence of a novel begins this many times more windows than other paragraphs, because people try it as a
# prompt.
OPENING_WEIGHT = 300
HEADING_CHARACTERS = 100  # shorter paragraphs at the start of a novel are its title and chapter number
TOKENS_PER_STEP = 4096
SHORT, LONG = 256, 512  # window lengths; every fourth step trains the whole context


@dataclass(frozen=True)
class PackedPart:
    """One part as tokens (uint16) and the positions at which a window may begin."""

    name: str
    tokens: np.ndarray
    starts: np.ndarray


def pack(part: Part, tokenizer: Tokenizer) -> PackedPart:
    """Tokenizes every document, with END_OF_TEXT after each."""
    end = special_id(tokenizer, END_OF_TEXT)
    tokens: list[int] = []
    starts: list[int] = []
    for document in part.train:
        opening = next((piece for piece in document if len(piece) > HEADING_CHARACTERS), None)
        is_novel = len(document) > 1
        for piece, encoding in zip(document, tokenizer.encode_batch(document), strict=True):
            starts.extend([len(tokens)] * (OPENING_WEIGHT if is_novel and piece is opening else 1))
            tokens.extend(encoding.ids)
        tokens.append(end)
    return PackedPart(part.name, np.array(tokens, dtype=np.uint16), np.array(starts, dtype=np.int64))


def save(packed: PackedPart, folder: Path) -> None:
    np.savez(folder / f"{packed.name}.npz", tokens=packed.tokens, starts=packed.starts)


def load(name: str, folder: Path) -> PackedPart:
    with np.load(folder / f"{name}.npz") as arrays:
        return PackedPart(name, arrays["tokens"], arrays["starts"])


class Batches:
    """Draws training windows: a batch is a function of (seed, step), so a resumed run sees the same data."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._parts = [load(name, folder) for name in EARLY_SHARES]
        self._seed = seed

    def at(self, step: int, progress: float) -> np.ndarray:
        """Returns int64 [rows, length + 1]; `progress` is the share of the run before the step."""
        shares = EARLY_SHARES if progress < LATE_BEGINS else LATE_SHARES
        length = LONG if step % 4 == 3 else SHORT
        rng = np.random.default_rng([self._seed, step])
        chosen = rng.choice(len(self._parts), size=TOKENS_PER_STEP // length, p=list(shares.values()))
        return np.stack([self._window(self._parts[part], length + 1, rng) for part in chosen]).astype(np.int64)

    @staticmethod
    def _window(part: PackedPart, size: int, rng: np.random.Generator) -> np.ndarray:
        start = min(int(rng.choice(part.starts)), len(part.tokens) - size)
        return part.tokens[start : start + size]
