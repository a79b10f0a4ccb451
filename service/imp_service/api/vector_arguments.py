"""Converts the Python API's arguments (texts, documents and keywords) to requests for vectors and rankings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from .keywords import parameters_of, take
from .vectors import EmbedRequest, RerankRequest, TextOrIds

Texts = str | Sequence[TextOrIds]
_NO_TEXTS, _NO_DOCUMENTS = EmbedRequest(()), RerankRequest("", ())
_INPUTS = ("texts", "query", "documents", "options")
EMBED_PARAMETERS, RERANK_PARAMETERS = (
    [*parameters_of(each.options), *(field for field in parameters_of(each) if field.name not in _INPUTS)]
    for each in (_NO_TEXTS, _NO_DOCUMENTS)
)


def embed_request_of(texts: Texts, options: dict[str, Any]) -> EmbedRequest:
    """A request for the vectors of texts with these keywords. A text alone is one of one."""
    request = EmbedRequest([texts] if isinstance(texts, str) else texts)
    return take(replace(request, options=take(request.options, options)), options)


def rerank_request_of(query: str, documents: Sequence[str], options: dict[str, Any]) -> RerankRequest:
    """A request for a ranking with these keywords."""
    request = RerankRequest(query, documents)
    return take(replace(request, options=take(request.options, options)), options)
