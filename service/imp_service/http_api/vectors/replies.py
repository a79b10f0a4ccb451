"""Bodies of replies with vectors, rankings and scores. Writing many vectors takes long: run it on a worker."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from typing import Any

from imp_service.api.replies import Usage
from imp_service.api.vectors import Ranking, Vectors
from imp_service.http_api.json_text import dumps
from imp_service.http_api.openai.replies import Head

# So many digits identify any 32-bit float.
FLOAT = "%.9g"


def vectors_body(vectors: Vectors, head: Head, usage: Usage, *, is_base64: bool) -> bytes:
    """The answer of `/v1/embeddings`."""
    write = _base64 if is_base64 else _floats
    data = ",".join(f'{{"object":"embedding","index":{i},"embedding":{each}}}' for i, each in enumerate(write(vectors)))
    rest = {"model": head.model, "usage": _usage(usage), **_truncated(vectors.truncated)}
    return f'{{"object":"list","data":[{data}],{dumps(rest)[1:]}'.encode()


def bare_vectors_body(vectors: Vectors) -> bytes:
    """The answer of TEI's `/embed`: a list of vectors."""
    return f"[{','.join(_floats(vectors))}]".encode()


def ranking_body(ranking: Ranking, head: Head, usage: Usage, documents: Sequence[str] | None) -> bytes:
    """The answer of `/v1/rerank`, with the documents if there are any."""
    results = []
    for each in ranking:
        found: dict[str, Any] = {"index": each.index, "relevance_score": decimal(each.score)}
        if documents is not None:
            found["document"] = {"text": documents[each.index]}
        results.append(found)
    rest = {
        "id": head.id,
        "object": "list",
        "model": head.model,
        "results": results,
        "usage": _usage(usage),
        "meta": {"tokens": {"input_tokens": usage.prompt_tokens}},
        **_truncated(ranking.truncated),
    }
    return dumps(rest).encode()


def bare_ranking_body(ranking: Ranking, documents: Sequence[str] | None) -> bytes:
    """The answer of TEI's `/rerank`: a list of results."""
    results = []
    for each in ranking:
        found: dict[str, Any] = {"index": each.index, "score": decimal(each.score)}
        if documents is not None:
            found["text"] = documents[each.index]
        results.append(found)
    return dumps(results).encode()


def scores_body(ranking: Ranking, head: Head, usage: Usage) -> bytes:
    """The answer of `/v1/score`: the scores in the order of the pairs."""
    in_order = sorted(ranking, key=lambda each: each.index)
    data = [{"index": each.index, "object": "score", "score": decimal(each.score)} for each in in_order]
    rest = {
        "id": head.id,
        "object": "list",
        "created": head.created,
        "model": head.model,
        "data": data,
        "usage": _usage(usage),
        **_truncated(ranking.truncated),
    }
    return dumps(rest).encode()


def decimal(value: float) -> float:
    """A 32-bit float with no more digits than identify it."""
    return float(FLOAT % value)


def _floats(vectors: Vectors) -> Iterable[str]:
    row = ",".join([FLOAT] * vectors.width)
    for vector in vectors:
        yield f"[{row % tuple(vector)}]"


def _base64(vectors: Vectors) -> Iterable[str]:
    """The bytes of the vectors, which are little-endian on every machine that imp runs on."""
    for vector in vectors:
        yield f'"{b64encode(vector.tobytes()).decode()}"'


def _usage(usage: Usage) -> dict[str, int]:
    return {"prompt_tokens": usage.prompt_tokens, "total_tokens": usage.prompt_tokens}


def _truncated(indices: Sequence[int]) -> dict[str, list[int]]:
    """The inputs that were cut, if any was."""
    return {"truncated": list(indices)} if indices else {}
