"""imp rerank: documents in the order in which they fit a query, by a model in this process."""

import sys
from argparse import ArgumentParser, Namespace

from imp_service.cli.options.settings import add_model_options, load_model_settings
from imp_service.cli.options.vectors import add_rerank_options, lines_of, require_model, rerank_options
from imp_service.cli.vector_output import ranking_json, warn_of_cuts, write_ranking

EXAMPLES = (
    'imp rerank -m bge-reranker-v2-m3 "capital of France" docs.txt',
    'imp rerank -m ms-marco-MiniLM-L6-v2 --top-n 3 "how to boil an egg" < docs.txt',
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="what the documents are ranked by")
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="files of documents, one on each line (default: stdin, as for -)"
    )
    add_model_options(parser)
    add_rerank_options(parser)
    parser.add_argument(
        "--json", action="store_true", help="print one JSON object (default: score, number and text on a line)"
    )


def run(arguments: Namespace) -> int:
    from imp_service.api.vectors import RerankRequest
    from imp_service.cli.banner import print_banner
    from imp_service.cli.progress import load_model
    from imp_service.cli.terminal import read_prompt
    from imp_service.generation.vector_calls import rerank_call

    config = load_model_settings(arguments)
    require_model(config, arguments.query, "ms-marco-MiniLM-L6-v2")
    query, documents = read_prompt(arguments.query), lines_of(arguments.files)
    runtime, file = load_model(config)
    try:
        print_banner(runtime, file)
        ranking = rerank_call(runtime, RerankRequest(query, documents, rerank_options(arguments))).result()
    finally:
        runtime.close()
    warn_of_cuts(ranking.truncated, "document")
    if arguments.json:
        sys.stdout.write(ranking_json(runtime.name, ranking, documents))
    else:
        write_ranking(ranking, documents)
    return 0
