"""imp embed: the vectors of texts, by a model in this process."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from imp_service.cli.arguments import Once
from imp_service.cli.options.settings import add_model_options, load_model_settings
from imp_service.cli.options.vectors import BATCH, add_embed_options, batches, embed_options, require_model, texts_of
from imp_service.cli.vector_output import truncated_in, vectors_json, warn_of_cuts, write_array, write_vectors

EXAMPLES = (
    'imp embed -m all-MiniLM-L6-v2 "Hello" "Good morning"',
    "imp embed -m all-MiniLM-L6-v2 --npy vectors.npy < lines.txt",
    'imp embed -m Qwen3-Embedding-0.6B --prompt-name query --json "Where is it cold?"',
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="a text (default: each line of stdin is one)")
    add_model_options(parser)
    add_embed_options(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object (default: a line for each text)")
    parser.add_argument("--npy", metavar="FILE", type=Path, action=Once, help="write an array for NumPy to this file")


def run(arguments: Namespace) -> int:
    from imp_service.api.vectors import EmbedRequest
    from imp_service.cli.banner import print_banner
    from imp_service.cli.progress import load_model
    from imp_service.generation.vector_calls import embed_call

    config = load_model_settings(arguments)
    texts = texts_of(arguments.texts)
    require_model(config, arguments.texts[0] if arguments.texts else "", "all-MiniLM-L6-v2")
    runtime, file = load_model(config)
    try:
        print_banner(runtime, file)
        options, parts = embed_options(arguments), []
        for some in batches(texts, BATCH):
            vectors = embed_call(runtime, EmbedRequest(some, options)).result()
            parts.append(vectors)
            if not (arguments.json or arguments.npy):
                write_vectors(vectors)
    finally:
        runtime.close()
    warn_of_cuts(truncated_in(parts), "text")
    if arguments.json and parts:
        sys.stdout.write(vectors_json(runtime.name, parts))
    if arguments.npy is not None:
        write_array(arguments.npy, parts)
    return 0
