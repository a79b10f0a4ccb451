"""The built-in model as a model that makes vectors: the mean of a text's rows. It also generates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.servers.served import Served

POOLED = "model.overrides.pooling=mean"
TEXTS = ("the cat", "Hello! What is", "日本", "A smile 😀 is", "Once upon a time there was a small house.")


def embed(served: Served, inputs: Sequence[str] | Sequence[list[int]], **options: Any) -> pb.EmbedResponse:
    """Returns the reply for texts, or for lists of ids."""
    if isinstance(inputs[0], str):
        return served.inference.Embed(pb.EmbedRequest(texts=inputs, **options))  # type: ignore[arg-type]
    ids = [types_pb2.TokenIds(ids=each) for each in inputs]  # type: ignore[arg-type]
    return served.inference.Embed(pb.EmbedRequest(token_ids=ids, **options))


def rows_of(reply: pb.EmbedResponse) -> NDArray[np.float32]:
    """Returns the vectors as rows."""
    return np.array([each.values for each in reply.embeddings], np.float32)


def bytes_of(reply: pb.EmbedResponse) -> list[bytes]:
    """Returns the exact bytes of each vector."""
    return [row.tobytes() for row in rows_of(reply)]
