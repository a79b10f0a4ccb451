"""The rules of calls that embed texts or rank documents, which are the same in every API."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from imp_service.api.errors import Violation
from imp_service.api.facts import findings
from imp_service.api.rules import count_violations
from imp_service.api.vectors import EmbedRequest, RerankOptions, RerankRequest, TextOrIds
from imp_service.core import Error
from imp_service.serving.refusal import Refusal
from imp_service.serving.rules.check import Finding
from imp_service.serving.rules.generation_rules import PROMPT_IDS, PROMPT_TEXT
from imp_service.serving.served_model import ServedModel

VECTOR_BYTES = 4
# What surrounds a vector in a reply, what a result of a ranking takes, and everything with a fixed size.
FRAME_BYTES, RESULT_BYTES, FIXED_BYTES = 16, 16, 1024


def embed_findings(request: EmbedRequest, served: ServedModel) -> Iterator[Finding]:
    """Everything that is wrong with a request. Paths are `texts`, `texts[3]`, and the names of options."""
    wrong = list(input_findings(request.texts, "texts", served))
    yield from (*wrong, *_option_findings(request, served))
    if not wrong and served.embedder is not None:
        width = int(min(request.options.dimensions or math.inf, served.embedder.facts.dimensions))
        yield from _size_violations(len(request.texts), VECTOR_BYTES * width + FRAME_BYTES, "texts", served)


def rerank_findings(request: RerankRequest, served: ServedModel) -> Iterator[Finding]:
    """The same; paths are `query`, `documents`, `documents[3]`, and the names of options."""
    wrong = list(input_findings(request.documents, "documents", served))
    yield from (*PROMPT_TEXT.check(request.query, "query", served), *wrong, *_option_findings(request, served))
    if not wrong:
        yield from _size_violations(len(request.documents), RESULT_BYTES, "documents", served)


def pair_findings(
    firsts: Sequence[str], seconds: Sequence[str], options: RerankOptions, served: ServedModel
) -> Iterator[Finding]:
    """The same for pairs of texts; paths are `text_1`, `text_2[3]`, and the names of options."""
    for path, texts in (("text_1", firsts), ("text_2", seconds)):
        yield from input_findings(texts, path, served)
    yield from _option_findings(RerankRequest("", (), options), served)


def input_findings(inputs: Sequence[TextOrIds], path: str, served: ServedModel) -> Iterator[Finding]:
    """The number of inputs, and each of them. If there are too many, none is checked."""
    wrong = list(count_violations(len(inputs), path, 1, served.settings.limits.max_inputs))
    yield from wrong
    for i, each in enumerate(() if wrong else inputs):
        if isinstance(each, str):
            yield from PROMPT_TEXT.check(each, f"{path}[{i}]", served)
        else:
            yield from PROMPT_IDS.check(each, f"{path}[{i}]", served)


def _option_findings(request: EmbedRequest | RerankRequest, served: ServedModel) -> Iterator[Finding]:
    """The options by their rules, and of those that fulfil them, what the model cannot do."""
    wrong = list(findings(request.options, served))
    yield from wrong
    paths = {each.path for each in wrong}
    yield from (
        each for each in _model_findings(request, served) if isinstance(each, Refusal) or each.path not in paths
    )


def _model_findings(request: EmbedRequest | RerankRequest, served: ServedModel) -> Iterator[Finding]:
    """What the model says: it cannot do it, or not so."""
    embedder = served.embedder
    if embedder is None:
        return
    if isinstance(request, EmbedRequest):
        require, violations = embedder.require_embeddings, embedder.embed_violations(request)
    else:
        require, violations = embedder.require_reranking, embedder.rerank_violations(request)
    try:
        require()
    except Error as error:
        yield Refusal(error.reason, error.message, error.details)
    else:
        yield from violations


def _size_violations(n: int, n_bytes: int, path: str, served: ServedModel) -> Iterator[Violation]:
    """A reply that is too large to send over gRPC is refused, before any work. HTTP has the same limit."""
    n_all, most = FIXED_BYTES + n * n_bytes, served.settings.limits.max_message_bytes
    if n_all > most:
        words = f"the reply would have {n_all} bytes, at most limits.max_message_bytes = {most} can be sent"
        yield Violation(path, words)
