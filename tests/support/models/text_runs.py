"""Makes vectors of texts with imp's decoder alone, in batches that a test chooses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from support.models.forward_runs import Cache
from support.models.text_cases import Text


def is_two_sided(model: Any) -> bool:
    return any(fact["name"] == "is_two_sided" for fact in model.facts)


def vectors(model: Any, texts: Sequence[Text], n_blocks: int = 64) -> NDArray[np.float32]:
    """Returns the vectors of the texts, of one batch."""
    cache = Cache(model, n_blocks)
    sees_all = is_two_sided(model)
    given = []
    for text in texts:
        n = len(text.tokens)
        given.append(cache._input(text.tokens, 0, cache.blocks(n), [n] * n if sees_all else []))
    types = [kind for text in texts for kind in text.types] if model.n_token_types > 1 else []
    cache.forward.run(given, [], types=types, pooled=list(range(len(texts))))
    found: NDArray[np.float32] = cache.forward.vectors()
    return found
