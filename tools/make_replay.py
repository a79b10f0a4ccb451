"""Writes tests/data/replay.jsonl.gz: prompts and known answers as tokens, made from the history of this repository.

Speculative decoding is measured on them: the answers are forced, so that no model is needed. Needs a GGUF file with the
vocabulary whose tokens are wanted, for example Qwen 2's; of a byte-level BPE with the pre-tokenizer of Qwen 2. Also
needs git, the extra `test`, and imp with the extension for its tests.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import itertools
import json
import random
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from support.run.needed import TESTING, needs

ROOT = Path(__file__).resolve().parents[1]
TARGET = ROOT / "tests" / "data" / "replay.jsonl.gz"
SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# The numbers of answers of each kind.
N_EDITS, N_DIFFS, N_EXTRACTIONS, N_NEW, N_PROSE, N_WRONG = 18, 16, 8, 12, 8, 4
KINDS_OF_FILES = (".py", ".cpp", ".h", ".md")

Sample = tuple[str, str]  # prompt and answer


def git(*arguments: str) -> str:
    """Returns the output of a command of git."""
    return subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def commits() -> list[tuple[str, str]]:
    """Returns hash and subject of each commit, in an order that says nothing of their content."""
    lines = git("log", "--no-merges", "--format=%H%x09%s", "HEAD").splitlines()
    pairs = [tuple(line.split("\t", 1)) for line in lines]
    return sorted(
        (pair for pair in pairs if len(pair) == 2), key=lambda pair: hashlib.sha256(pair[1].encode()).digest()
    )


def changes(kind: str, lines: range, changed: range) -> Iterator[tuple[str, str, str]]:
    """Yields commit, subject and path of one file of each commit: added (A) or modified (M)."""
    for commit, subject in commits():
        names = git("diff-tree", "-r", "--no-commit-id", f"--diff-filter={kind}", "--numstat", commit).splitlines()
        for name in names:
            added, deleted, path = name.split("\t")
            if not path.endswith(KINDS_OF_FILES) or not added.isdigit() or path.startswith("service/imp_service/pb"):
                continue
            if int(added) + int(deleted) in changed and git("show", f"{commit}:{path}").count("\n") in lines:
                yield commit, subject, path
                break


def edits() -> Iterator[Sample]:
    """Whole files after a small change, beside the files before it."""
    for commit, subject, path in changes("M", range(40, 130), range(3, 25)):
        before, after = git("show", f"{commit}^:{path}"), git("show", f"{commit}:{path}")
        yield f"{path}:\n```\n{before}```\nChange: {subject}. The whole new file:\n```\n", f"{after}```\n"


def diffs() -> Iterator[Sample]:
    """Unified diffs, beside the files that they change."""
    for commit, subject, path in changes("M", range(60, 200), range(8, 60)):
        before = git("show", f"{commit}^:{path}")
        diff = "\n".join(git("diff", f"{commit}^", commit, "--", path).splitlines()[2:])
        yield f"{path}:\n```\n{before}```\nChange: {subject}. As a unified diff:\n```diff\n", f"{diff}\n```\n"


def extractions() -> Iterator[Sample]:
    """Rows of the contracts as JSON."""
    text = (ROOT / "docs" / "contracts.md").read_text(encoding="utf-8")
    row = re.compile(r"^- \*\*([A-Z]+-\d+)\*\* · (\d) · (\S+) — (.*?) \*Test:\* (.*?)(?=\n- |\n\n|\Z)", re.M | re.S)
    found = [(match.group(0), match.groups()) for match in row.finditer(text)]
    for first in range(0, len(found), 7):
        rows = found[first : first + 7]
        facts = [
            {
                "id": name,
                "priority": int(priority),
                "level": level.strip(","),
                "promise": flat(says),
                "test": flat(test),
            }
            for _, (name, priority, level, says, test) in rows
        ]
        source = "\n".join(whole for whole, _ in rows)
        yield f"{source}\n\nThe rows as JSON:\n", json.dumps(facts, ensure_ascii=False, indent=1) + "\n"


def new_files() -> Iterator[Sample]:
    """New files, beside another one of their folder."""
    for commit, subject, path in changes("A", range(30, 120), range(30, 120)):
        folder = str(Path(path).parent)
        beside = [name for name in git("ls-tree", "--name-only", f"{commit}^", f"{folder}/").splitlines()
                  if name.endswith(Path(path).suffix)]  # fmt: skip
        if not beside:
            continue
        neighbour = git("show", f"{commit}^:{beside[0]}")
        if neighbour.count("\n") < 150:
            yield (
                f"{beside[0]}:\n```\n{neighbour}```\n{subject}. The new file {path}:\n```\n",
                (git("show", f"{commit}:{path}") + "```\n"),
            )


def prose() -> Iterator[Sample]:
    """Second halves of sections of the documentation."""
    for page in sorted((ROOT / "docs").glob("*.md")):
        for section in re.split(r"^## ", page.read_text(encoding="utf-8"), flags=re.M)[1:]:
            paragraphs = section.split("\n\n")
            if len(paragraphs) >= 6 and "|" not in section and "- **" not in section and len(section) < 6000:
                half = len(paragraphs) // 2
                yield "\n\n".join(paragraphs[:half]) + "\n\n", "\n\n".join(paragraphs[half:]) + "\n"


def flat(text: str) -> str:
    """Returns the text on one line."""
    return " ".join(text.split())


def never_guessed(n_tokens: int, seed: int) -> list[int]:
    """Tokens of few kinds, so that prompt lookup always has a guess, and each another one than that guess."""
    with needs(TESTING):
        from imp_service._testing import IndexedTokens
    rng, index, tokens = random.Random(seed), IndexedTokens(n_tokens), [0, 1]
    index.extend(tokens)
    while len(tokens) < n_tokens:
        guessed = index.propose(1)
        tokens.append(rng.choice([token for token in range(12) if not guessed or token != guessed[0][0]]))
        index.extend(tokens[-1:])
    return tokens


def tokenizer_of(path: Path) -> Callable[[str], list[int]]:
    """Returns the function that encodes a text with the vocabulary of a GGUF file."""
    with needs(TESTING):
        from gguf import GGUFReader
    reader = GGUFReader(path)
    tokens, merges = (reader.fields[f"tokenizer.ggml.{name}"].contents() for name in ("tokens", "merges"))
    vocabulary = {token: number for number, token in enumerate(tokens)}
    model = models.BPE(vocabulary, [tuple(merge.split(" ")) for merge in merges])
    tokenizer = Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(SPLIT), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()

    def encode(text: str) -> list[int]:
        ids: list[int] = tokenizer.encode(text).ids
        assert tokenizer.decode(ids) == text
        return ids

    return encode


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("vocabulary", type=Path, help="the GGUF file")
    encode = tokenizer_of(parser.parse_args().vocabulary)
    lines = []
    for kind, samples, n in (
        ("edit", edits(), N_EDITS),
        ("diff", diffs(), N_DIFFS),
        ("extraction", extractions(), N_EXTRACTIONS),
        ("new code", new_files(), N_NEW),
        ("prose", prose(), N_PROSE),
    ):
        for prompt, answer in itertools.islice(samples, n):
            lines.append({"kind": kind, "prompt": encode(prompt), "answer": encode(answer)})
    for seed in range(N_WRONG):
        tokens = never_guessed(1200, seed)
        lines.append({"kind": "never right", "prompt": tokens[:500], "answer": tokens[500:]})
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    TARGET.write_bytes(gzip.compress(text.encode(), mtime=0))


if __name__ == "__main__":
    main()
