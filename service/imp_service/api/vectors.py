"""Vectors of texts, and rankings of documents: their options and results."""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

from .facts import option
from .replies import Timings
from .rules import U32, Bounds, Core, Number, OneOf, Text
from .shown import tokens_text

# What happens to an input that is too long: it is refused, or its end or start is cut.
TRUNCATIONS = ("none", "end", "start")
_COUNT = Number(Bounds(1, U32, whole=True))
_WORDS = Text(0, "limits.max_prompt_bytes")
_TRUNCATE = OneOf(("", *TRUNCATIONS))  # empty: as the settings say
# Of a call that did not run.
NO_TIME = Timings(0.0, 0.0, 0.0)
# A text, or its tokens as they are.
TextOrIds = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """How texts become vectors."""

    dimensions: int | None = option(None, _COUNT, about="the first ones of each vector alone")
    normalize: bool = option(True, about="scale each vector to length one")
    truncate: str = option("", _TRUNCATE, about="what is cut from a text that is too long")
    max_tokens: int | None = option(None, _COUNT, about="most tokens of a text, below the model's own limit")
    prompt_name: str = option("", Text(0, 128), about="a prompt of the model, which is put before each text")
    instruction: str = option(
        "",
        Text(0, "limits.max_prompt_bytes"),
        about="what the vectors are for, where the model's prompt has a place for it",
    )
    add_special_tokens: bool = option(True, about="put the model's special tokens around each text")


@dataclass(frozen=True, slots=True)
class RerankOptions:
    """How documents are ranked."""

    top_n: int | None = option(None, _COUNT, about="the best documents alone")
    truncate: str = option("", _TRUNCATE, about="what is cut from a document that is too long")
    max_tokens: int | None = option(None, _COUNT, about="most tokens of a pair, below the model's own limit")
    max_document_tokens: int | None = option(None, _COUNT, about="most tokens of a document; its end is cut")
    instruction: str = option(
        "",
        Text(0, "limits.max_prompt_bytes"),
        about="what makes a document fit, where the model's prompt has a place for it",
    )
    raw_scores: bool = option(False, about="the model's own numbers in place of probabilities")


@dataclass(frozen=True, slots=True)
class EmbedRequest:
    """Texts to embed."""

    texts: Sequence[TextOrIds]
    options: EmbedOptions = EmbedOptions()
    priority: int = option(0, Core("priority"), about="as the metadata key `imp-priority`")
    tenant: str = option("", Text(0, "tenant_bytes"))


@dataclass(frozen=True, slots=True)
class RerankRequest:
    """Documents to rank by how well they fit a query."""

    query: str
    documents: Sequence[str]
    options: RerankOptions = RerankOptions()
    priority: int = option(0, Core("priority"), about="as the metadata key `imp-priority`")
    tenant: str = option("", Text(0, "tenant_bytes"))


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Vectors(Sequence["array[float]"]):
    """The vectors of texts, in the order of the texts: 32-bit floats. `numpy.asarray` makes one array of them."""

    values: tuple[array[float], ...]
    timings: Timings = NO_TIME
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    truncated: Sequence[int] = ()  # the texts that were cut, by their indices

    def __len__(self) -> int:
        return len(self.values)

    @overload
    def __getitem__(self, index: int) -> array[float]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[array[float], ...]: ...
    def __getitem__(self, index: int | slice) -> array[float] | tuple[array[float], ...]:
        return self.values[index]

    def __iter__(self) -> Iterator[array[float]]:
        return iter(self.values)

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """For NumPy, which imp's client does not need."""
        order = {"little": "<", "big": ">"}[sys.byteorder]
        shape = (len(self.values), self.width)
        return {"version": 3, "typestr": f"{order}f4", "shape": shape, "data": bytearray().join(self.values)}

    @property
    def width(self) -> int:
        """The dimensions of each vector."""
        return len(self.values[0]) if self.values else 0

    def __repr__(self) -> str:
        return f"<Vectors: {len(self)} of {self.width} dimensions; {tokens_text(self.prompt_tokens)}>"


@dataclass(frozen=True, slots=True)
class RankResult:
    """How well one document fits."""

    index: int  # of the document in the request
    score: float


@dataclass(frozen=True, slots=True, repr=False)
class Ranking(Sequence[RankResult]):
    """Documents from the best to the worst; of two that are equal, the first in the request comes first."""

    results: tuple[RankResult, ...]
    timings: Timings = NO_TIME
    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    truncated: Sequence[int] = ()  # the documents that were cut, by their indices

    def __len__(self) -> int:
        return len(self.results)

    @overload
    def __getitem__(self, index: int) -> RankResult: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[RankResult, ...]: ...
    def __getitem__(self, index: int | slice) -> RankResult | tuple[RankResult, ...]:
        return self.results[index]

    def __iter__(self) -> Iterator[RankResult]:
        return iter(self.results)

    def __repr__(self) -> str:
        best = ", ".join(f"{each.index}: {each.score:.4f}" for each in self.results[:3])
        more = ", …" if len(self) > 3 else ""
        return f"<Ranking of {len(self)} documents: {best}{more}; {tokens_text(self.prompt_tokens)}>"


def ranked(scores: Sequence[float], top_n: int | None = None) -> tuple[RankResult, ...]:
    """The results of these scores, which are those of the documents in their order."""
    order = sorted(range(len(scores)), key=lambda i: (-scores[i], i))
    return tuple(RankResult(i, scores[i]) for i in order[:top_n])
