"""Makes the corpus: named parts, each a list of training documents and a list held out, all from one seed."""

import random
from dataclasses import dataclass
from pathlib import Path

from .chat import write_chat, write_short_chat
from .descriptions import write_description
from .sources import austen_novels, fetch, wordnet_glosses
from .stories import write_story

SEED = 20_240_229
COUNTS = {
    "stories": 44_000,
    "descriptions": 40_000,
    "chat": 60_000,
    "questions": 60_000,
}  # generated training documents
HELD_OUT_COUNTS = {"stories": 60, "descriptions": 80, "chat": 80, "questions": 80}
HELD_OUT_FRACTION = 0.02  # from Austen and WordNet
GLOSSES_PER_DOCUMENT = 6


@dataclass(frozen=True)
class Part:
    """One kind of text; a document is a list of pieces, and training windows may begin at any piece."""

    name: str
    train: list[list[str]]
    held_out: list[str]


def _generated(name: str) -> Part:
    writer = {
        "stories": lambda rng: write_story(rng)[0],
        "descriptions": write_description,
        "chat": write_chat,
        "questions": write_short_chat,
    }[name]
    rng = random.Random(f"{SEED} {name}")
    train = [[writer(rng)] for _ in range(COUNTS[name])]
    seen = {document for (document,) in train}
    held_out: list[str] = []
    while len(held_out) < HELD_OUT_COUNTS[name]:
        document = writer(rng)
        if document not in seen:
            held_out.append(document)
            seen.add(document)
    return Part(name, train, held_out)


def _paragraphs(lines: list[str]) -> list[str]:
    """Undoes the line wrapping of a novel."""
    text = "\n".join(line.strip().replace("_", "") for line in lines)
    return [" ".join(paragraph.split()) for paragraph in text.split("\n\n") if paragraph.strip()]


def _austen(folder: Path) -> Part:
    train, held_out = [], []
    for novel in austen_novels(fetch("r-cran-janeaustenr", folder)):
        paragraphs = [paragraph + "\n\n" for paragraph in _paragraphs(novel)]
        cut = int(len(paragraphs) * (1 - HELD_OUT_FRACTION))
        train.append(paragraphs[:cut])
        held_out.append("".join(paragraphs[cut:]).strip())
    return Part("austen", train, held_out)


def _wordnet(folder: Path) -> Part:
    names = {"noun": "noun", "verb": "verb", "adj": "adjective", "adv": "adverb"}
    lines = []
    for word, part, gloss in wordnet_glosses(fetch("wordnet-base", folder)):
        definition = gloss.split('; "')[0].rstrip("; ")
        lines.append(f"{word} ({names[part]}): {definition}")
    size = GLOSSES_PER_DOCUMENT
    documents = ["\n".join(lines[at : at + size]) for at in range(0, len(lines), size)]
    random.Random(f"{SEED} wordnet").shuffle(documents)
    cut = int(len(documents) * (1 - HELD_OUT_FRACTION))
    return Part("wordnet", [[document] for document in documents[:cut]], documents[cut:])


def make_parts(folder: Path) -> list[Part]:
    """Returns every part; `folder` receives the two downloaded packages."""
    return [*(_generated(name) for name in COUNTS), _austen(folder), _wordnet(folder)]
