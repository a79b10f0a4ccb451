"""Paths that exist, and that imp does not support."""

from __future__ import annotations

from imp_service.http_api.http_call import HttpCall
from imp_service.serving.refusal import Refusal


async def embeddings(call: HttpCall) -> None:
    """This model makes no embeddings."""
    raise Refusal("NOT_SUPPORTED_BY_MODEL", "this model makes no embeddings", {"feature": "embeddings"})
