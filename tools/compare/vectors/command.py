"""Compares imp with sentence-transformers, onnxruntime and llama.cpp: the time to embed texts.

`python tools/compare vectors FOLDER` with the folder of a BERT of sentence-transformers that takes the mean of its
rows, such as all-MiniLM-L6-v2. Every engine makes the vectors of the same texts in float32, from text to unit length,
in a process of its own and in turn; before that their vectors are compared. onnxruntime and llama.cpp get files that
this program writes from the folder's weights. The extra `peers` has what it needs, apart from sentence-transformers,
onnx and onnxruntime.
"""

from __future__ import annotations

import tempfile
from argparse import Namespace
from collections.abc import Sequence
from contextlib import ExitStack
from itertools import product
from pathlib import Path

import numpy as np

from compare.options import parser_of
from compare.processes import OtherProcesses, settle
from compare.refused import RefusedError
from compare.report import Report
from compare.table import SPREAD, Table, numbers, times
from compare.vectors.engine_process import EngineProcess, engine_process
from compare.vectors.engines import ENGINES
from imp_service.cli.arguments import positive_integer
from imp_service.core.bench.report import Spread

# One token each in the vocabulary of BERT.
WORDS = (
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "while",
    "rain",
    "fell",
    "over",
    "green",
    "hills",
    "near",
    "the",
    "river",
)
# The product of two unit vectors that are the same up to float32.
LEAST_COSINE = 0.9999


def main(words: Sequence[str]) -> None:
    """Prints a row for each case and engine."""
    arguments = parsed(words)
    table = Table((("texts × tokens", -16), ("engine", -22), *SPREAD, ("imp is", 13)))
    with Report("vectors", arguments, model=arguments.model.name) as report, ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        engines = started(stack, arguments, scratch, report)
        require_equal(engines, [text for n in arguments.tokens for text in texts_of(3, n)], report)
        print(table.heading, flush=True)
        for n_texts, n_tokens in product(arguments.batches, arguments.tokens):
            speeds, others = measured(engines, texts_of(n_texts, n_tokens), arguments.reps)
            for name, spread in speeds.items():
                ours = Spread.of(a / b for a, b in zip(speeds["imp"].samples, spread.samples, strict=True))
                ratio = "" if name == "imp" else times(ours)
                label = f"{n_texts} × {n_tokens}" if name == "imp" else ""
                print(table.row(label, name, *numbers(spread), ratio), flush=True)
                report.rows["cases"].append(
                    {"texts": n_texts, "tokens": n_tokens, "engine": name, "texts_per_s": spread.as_json()}
                )
            print(table.row("", f"other processes used up to {others:.2f} CPUs"), flush=True)


def parsed(words: Sequence[str]) -> Namespace:
    """Returns the parsed command line."""
    parser = parser_of("vectors", __doc__)
    parser.add_argument("model", type=Path, metavar="FOLDER", help="the model's folder")
    parser.add_argument("--batches", type=counts, default=[1, 64], metavar="N,…", help="texts of a call; 1,64")
    parser.add_argument("--tokens", type=counts, default=[32, 256], metavar="N,…", help="of a text; 32,256")
    parser.add_argument("--engines", default=",".join(ENGINES), metavar="NAME,…", help="default: %(default)s")
    parser.add_argument("--threads", type=positive_integer, default=2, metavar="N", help="default: %(default)s")
    parser.add_argument("--reps", type=positive_integer, default=5, metavar="N", help="rounds; default: %(default)s")
    return parser.parse_args(words)


def counts(text: str) -> list[int]:
    """Returns the numbers of a list with commas."""
    return [positive_integer(word) for word in text.split(",")]


def texts_of(n_texts: int, n_tokens: int) -> list[str]:
    """Returns different texts of so many tokens, with [CLS] and [SEP]."""
    return [" ".join(WORDS[(i * 7 + k * (i + 1)) % len(WORDS)] for k in range(n_tokens - 2)) for i in range(n_texts)]


def started(stack: ExitStack, arguments: Namespace, scratch: Path, report: Report) -> list[EngineProcess]:
    """Starts the engines, imp first. One that does not start is left out."""
    found = []
    for name in ["imp", *(name for name in arguments.engines.split(",") if name != "imp")]:
        try:
            found.append(stack.enter_context(engine_process(name, arguments.model, scratch, arguments.threads)))
        except RefusedError as refusal:
            if name == "imp":
                raise
            report.left_out[name] = str(refusal)
            print(f"{name} is left out: {refusal}", flush=True)
    return found


def require_equal(engines: Sequence[EngineProcess], texts: list[str], report: Report) -> None:
    """Raises RefusedError if an engine's vectors are not imp's."""
    ours, *theirs = (np.array(engine.ask("embed", texts), np.float64) for engine in engines)
    for engine, vectors in zip(engines[1:], theirs, strict=True):
        least = float((vectors * ours).sum(axis=1).min())
        report.rows["cosines"].append({"engine": engine.name, "least_cosine": least})
        if least < LEAST_COSINE:
            raise RefusedError(f"{engine.name} makes other vectors: least cosine {least:.6f}")


def measured(engines: Sequence[EngineProcess], texts: list[str], reps: int) -> tuple[dict[str, Spread], float]:
    """Returns the texts a second of every engine, and what other processes used at most."""
    rates: dict[str, list[float]] = {engine.name: [] for engine in engines}
    others = 0.0
    for engine in engines:
        engine.ask("time", texts)  # warms up
    for number in range(reps):
        first = number % len(engines)
        for engine in [*engines[first:], *engines[:first]]:
            watch = OtherProcesses(engine.pid)
            rates[engine.name].append(len(texts) / engine.ask("time", texts))
            others = max(others, watch.cpus())
            settle(engine.pid)
    return {name: Spread.of(samples) for name, samples in rates.items()}, others
