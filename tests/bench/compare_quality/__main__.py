"""Measures how far quantized engines are from float32: `python tests/bench/compare_quality FILE… [--kv f16,bf16] …`.

The reference runs the file's decoded weights in NumPy; imp and llama.cpp run the file. All read the same tokens; the
report compares their distributions of every next token. `make_model.py` next to this folder writes files for the
comparison: `demo` is a trained model, the others are random. Needs gguf and llama-cpp-python (extra `peers`).
"""

from __future__ import annotations

import argparse
import json
import math
import random
import sys
from pathlib import Path

# Replaces this folder.
sys.path[0] = str(Path(__file__).resolve().parents[2])

from bench.compare_quality.divergence import Scale, divergences  # noqa: E402
from bench.compare_quality.engines.imp_rows import ImpRows  # noqa: E402
from bench.compare_quality.report import HEADING, Comparison, Reading, lines  # noqa: E402
from bench.compare_quality.rows import Sequences  # noqa: E402
from imp_service import _core  # noqa: E402
from imp_service.cli.arguments import positive_integer  # noqa: E402
from imp_service.config import ConfigError  # noqa: E402
from imp_service.core.errors import Error  # noqa: E402
from imp_service.text import Tokenizer  # noqa: E402
from support.needed import PEERS, needs  # noqa: E402


def main() -> None:
    """Compares the engines on each file, prints the results, and writes JSON if the command line requests it."""
    arguments = parsed()
    with needs(PEERS):
        from bench.compare_quality.engines.llama_cpp_rows import LlamaCppRows
    found = []
    print(HEADING, flush=True)
    if note := LlamaCppRows.note():
        print(f"llama.cpp: {note}", flush=True)
    for path in arguments.models:
        comparison = compare(path, arguments)
        print("\n".join(lines(comparison)), flush=True)
        found.append(comparison)
    if arguments.json is not None:
        notes = {"llama.cpp": note} if note else {}
        report = {
            "schema": "imp.compare_quality.v1",
            "notes": notes,
            "files": [comparison.as_json() for comparison in found],
        }
        arguments.json.write_text(json.dumps(report, indent=1) + "\n")


def parsed() -> argparse.Namespace:
    """Returns the parsed command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", type=Path, nargs="+", metavar="FILE", help="GGUF files")
    parser.add_argument("--kv", default=["f16"], type=words, metavar="TYPE,…", help="types of both engines' caches")
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
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every figure to FILE")
    return parser.parse_args()


def words(text: str) -> list[str]:
    """Splits a list such as f16,bf16; the engines check the names."""
    return text.split(",")


def compare(path: Path, arguments: argparse.Namespace) -> Comparison:
    """Compares all engines on one file, one after the other, because the weights of each fill the memory."""
    from bench.compare_quality.engines.llama_cpp_rows import LlamaCppRows
    from bench.compare_quality.engines.reference_rows import ReferenceRows

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
        return [
            [draw.randrange(vocab_size // 8, vocab_size * 7 // 8) for _ in range(n_tokens)] for _ in range(n_sequences)
        ]
    tokens = Tokenizer.from_metadata(metadata).encode(arguments.text.read_text(encoding="utf-8"))
    if len(tokens) < n_sequences * n_tokens:
        raise SystemExit(f"{arguments.text}: {len(tokens)} tokens, expected {n_sequences} × {n_tokens}")
    return [tokens[i * n_tokens : (i + 1) * n_tokens] for i in range(n_sequences)]


if __name__ == "__main__":
    try:
        main()
    except (Error, ConfigError) as error:
        raise SystemExit(f"imp: {error}") from None
