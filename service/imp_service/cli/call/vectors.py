"""imp call embed and rerank: the vectors of texts, and the order of documents, by the served model."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from imp_service.cli.arguments import Once
from imp_service.cli.options.connection import connect
from imp_service.cli.options.vectors import (
    BATCH,
    add_embed_options,
    add_rerank_options,
    batches,
    embed_options,
    lines_of,
    rerank_options,
    texts_of,
)


def configure_embed(parser: ArgumentParser) -> None:
    parser.add_argument("texts", metavar="TEXT", nargs="*", help="a text (default: each line of stdin is one)")
    add_embed_options(parser)
    parser.add_argument("--npy", metavar="FILE", type=Path, action=Once, help="write an array for NumPy to this file")
    parser.set_defaults(run_method=_embed)


def configure_rerank(parser: ArgumentParser) -> None:
    parser.add_argument("query", metavar="QUERY", help="what the documents are ranked by")
    parser.add_argument(
        "files", metavar="FILE", nargs="*", help="files of documents, one on each line (default: stdin, as for -)"
    )
    add_rerank_options(parser)
    parser.set_defaults(run_method=_rerank)


def _embed(arguments: Namespace) -> int:
    from imp_service.api.vectors import EmbedRequest
    from imp_service.cli.output import write_message
    from imp_service.cli.vector_output import truncated_in, warn_of_cuts, write_array, write_vectors
    from imp_service.client.messages.read_replies import read_vectors
    from imp_service.client.messages.write_requests import write_embed

    texts, options, parts = texts_of(arguments.texts), embed_options(arguments), []
    with connect(arguments) as connection:
        for some in batches(texts, BATCH):
            reply = connection.unary(connection.inference.Embed, write_embed(EmbedRequest(some, options)))
            parts.append(read_vectors(reply))
            if arguments.json:
                write_message(reply)
            elif arguments.npy is None:
                write_vectors(parts[-1])
    warn_of_cuts(truncated_in(parts), "text")
    if arguments.npy is not None:
        write_array(arguments.npy, parts)
    return 0


def _rerank(arguments: Namespace) -> int:
    from imp_service.api.vectors import RerankRequest
    from imp_service.cli.output import write_message
    from imp_service.cli.terminal import read_prompt
    from imp_service.cli.vector_output import warn_of_cuts, write_ranking
    from imp_service.client.messages.read_replies import read_ranking
    from imp_service.client.messages.write_requests import write_rerank

    query, documents = read_prompt(arguments.query), lines_of(arguments.files)
    request = write_rerank(RerankRequest(query, documents, rerank_options(arguments)))
    with connect(arguments) as connection:
        reply = connection.unary(connection.inference.Rerank, request)
    ranking = read_ranking(reply)
    warn_of_cuts(ranking.truncated, "document")
    if arguments.json:
        write_message(reply)
    else:
        write_ranking(ranking, documents)
    return 0
