"""Measures how far quantized engines are from float32: `python tools/compare quality FILE… [--kv f16,bf16] …`.

The reference runs the file's decoded weights in NumPy; imp and llama.cpp run the file. All read the same tokens; the
report compares their distributions of every next token. `python tools/make_model.py` writes files for the comparison:
`demo` is a trained model, the others are random. Needs gguf and llama-cpp-python (extra `peers`).
"""

from __future__ import annotations

import argparse
import math
import random
from collections.abc import Sequence
from pathlib import Path

from compare.options import parser_of
from compare.quality.divergence import Scale, divergences
from compare.quality.imp_rows import ImpRows
from compare.quality.results import TABLE, Comparison, Reading, lines
from compare.quality.rows import Sequences
from compare.report import Report
from compare.tokens import any_tokens
from imp_service import _core
from imp_service.cli.arguments import positive_integer
from imp_service.text import Tokenizer
from support.run.needed import PEERS, needs


def main(words: Sequence[str]) -> None:
    """Compares the engines on each file, prints the results, and writes JSON if the command line requests it."""
    arguments = parsed(words)
    with needs(PEERS):
        from compare.llama_contexts import note
    print(TABLE.heading, flush=True)
    with Report("quality", arguments) as report:
        if told := note():
            report.notes["llama.cpp"] = told
            print(f"llama.cpp: {told}", flush=True)
        for path in arguments.models:
            comparison = compare(path, arguments)
            print("\n".join(lines(comparison)), flush=True)
            report.rows["files"].append(comparison.as_json())


def parsed(words: Sequence[str]) -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = parser_of("quality", __doc__)
    parser.add_argument("models", type=Path, nargs="+", metavar="FILE", help="GGUF files")
    parser.add_argument("--kv", default=["f16"], type=names, metavar="TYPE,…", help="types of both engines' caches")
    parser.add_argument("--text", type=Path, metavar="FILE", help="tokens of this text; default: any tokens")
    parser.add_argument("--sequences", type=positive_integer, default=8, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--tokens", type=positive_integer, default=128, metavar="N", help="of each sequence; default: %(default)s"
    )
    parser.add_argument("--threads", type=positive_integer, default=2, metavar="N", help="default: %(default)s")
    parser.add_argument(
        "--entropy",
        type=float,
        metavar="NATS",
        help="multiply all logits so that the reference has this mean entropy: random weights say little",
    )
    return parser.parse_args(words)


def names(text: str) -> list[str]:
    """Splits a list such as f16,bf16; the engines check the names."""
    return text.split(",")


def compare(path: Path, arguments: argparse.Namespace) -> Comparison:
    """Compares all engines on one file, one after the other, because the weights of each fill the memory."""
    from compare.quality.llama_cpp_rows import LlamaCppRows
    from compare.quality.reference_rows import ReferenceRows

    sequences = chosen(path, arguments)
    reference = list(ReferenceRows(path)(sequences))
    scale = Scale.of(reference, arguments.entropy)
    # The peer's default cache is always included, because imp is judged against it.
    readings = [
        Reading(source.name, kv, divergences(reference, source(path, arguments.threads, sequences), scale))
        for kv in dict.fromkeys(["f16", *arguments.kv])
        for source in [*([ImpRows(kv)] if kv in arguments.kv else []), *LlamaCppRows.both_ways(kv)]
    ]
    return Comparison(path, math.log(reference[0].shape[1]), scale, readings)


def chosen(path: Path, arguments: argparse.Namespace) -> Sequences:
    """Returns the sequences for all engines: successive pieces of the text, or random tokens but no control tokens."""
    n_sequences, n_tokens = arguments.sequences, arguments.tokens
    metadata = _core.open_model_file(path).metadata
    vocab_size = len(metadata["tokenizer.ggml.tokens"])
    if arguments.text is None:
        draw = random.Random(0)
        return [any_tokens(n_tokens, vocab_size, draw) for _ in range(n_sequences)]
    tokens = Tokenizer.from_metadata(metadata).encode(arguments.text.read_text(encoding="utf-8"))
    if len(tokens) < n_sequences * n_tokens:
        raise SystemExit(f"{arguments.text}: {len(tokens)} tokens, expected {n_sequences} × {n_tokens}")
    return [tokens[i * n_tokens : (i + 1) * n_tokens] for i in range(n_sequences)]
