"""Trains the built-in demo model and its draft and writes them into the package: prepare, target, draft, export, golden."""

import argparse
import re
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist

from demo_model.corpus.documents import Part, make_parts
from demo_model.dataset import pack, save
from demo_model.network import DRAFT, TARGET, Network
from demo_model.training import Run, train
from demo_model.vocabulary import load_vocabulary, train_vocabulary

SEED = 1
VOCABULARY_STRIDES = {"stories": 12, "descriptions": 6, "chat": 12, "austen": 2, "wordnet": 4}


def vocabulary_sample(parts: list[Part]) -> Iterator[str]:
    """Yield the text that the vocabulary is learned from: about as much of each source, without special tokens."""
    for part in parts:
        pieces = [piece for document in part.train for piece in document]
        for piece in pieces[:: VOCABULARY_STRIDES[part.name]]:
            yield re.sub(r"<\|\w+\|>", "\n", piece)


def prepare(work: Path) -> None:
    """Fetch and generate the corpus, learn the vocabulary, write the token arrays."""
    work.mkdir(parents=True, exist_ok=True)
    parts = make_parts(work)
    tokenizer = train_vocabulary(vocabulary_sample(parts))
    tokenizer.save(str(work / "tokenizer.json"))
    for part in parts:
        packed = pack(part, tokenizer)
        save(packed, work)
        n_bytes = sum(len(piece.encode()) for document in part.train for piece in document)
        print(f"{part.name}: {n_bytes} bytes, {len(packed.tokens)} tokens, {n_bytes / len(packed.tokens):.2f} bytes/token")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stage", choices=["prepare", "target", "draft"])
    parser.add_argument("--work", type=Path, default=Path("build/demo_model"), help="folder for downloads, tokens, checkpoints")
    parser.add_argument("--steps", type=int, default=5000)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    work: Path = arguments.work
    if arguments.stage == "prepare":
        prepare(work)
    elif arguments.stage == "target":
        train(Run(TARGET, arguments.steps, SEED, work, work / "target.pt"))


if __name__ == "__main__":
    main()
