"""What a model makes of texts, and what people may write where its files do not say it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from imp_service.config import Settings
from imp_service.core.overrides import YES_NO
from imp_service.generation.pairs import PairReader
from imp_service.generation.text_prompts import TextPrompts

NONE, RANK = "none", "rank"
SETTING = "model.overrides.pooling"
# llama.cpp's number of the pooling of rerankers.
_GGUF_RANK = 4


@dataclass(frozen=True, slots=True)
class CoreFacts:
    """What the core computes of texts."""

    pooling: str
    width: int  # of a vector
    has_head: bool
    needs_whole_texts: bool
    max_context: int


@dataclass(frozen=True, slots=True)
class EmbeddingFacts:
    """What a model makes of texts."""

    pooling: str  # "mean", "cls", "last", "rank" or "yes_no"; "none": neither vectors nor scores
    dimensions: int  # of a vector; 0 where it makes no vectors
    max_tokens: int  # of an input, special tokens included
    prompt_names: tuple[str, ...] = ()
    takes_instruction: bool = False
    reads_pairs: bool = False
    is_matryoshka: bool = False  # the model says that shorter vectors are good ones
    has_head: bool = True  # it generates text

    @property
    def embeds(self) -> bool:
        """It makes vectors."""
        return self.dimensions > 0

    @property
    def reranks(self) -> bool:
        """It scores pairs of a query and a document."""
        return self.pooling in (RANK, YES_NO) and self.reads_pairs

    @property
    def no_vectors(self) -> str:
        """Why it makes no vectors; empty if it does."""
        if self.embeds:
            return ""
        if self.pooling in (RANK, YES_NO):
            return "this model ranks documents, and makes no vectors"
        return f"this model's files do not say how a text becomes a vector; {advice(has_head=self.has_head)}"

    @property
    def no_scores(self) -> str:
        """Why it scores no pairs; empty if it does."""
        if self.reranks:
            return ""
        if self.pooling in (RANK, YES_NO):
            return "this model's files do not say how a query and a document become one input"
        if not self.has_head or self.embeds:
            return "this model makes vectors, and does not rank documents"
        return f'this model does not rank documents; for one that answers yes or no set {SETTING} = "{YES_NO}"'

    @property
    def no_text(self) -> str:
        """Why it generates no text; empty if it does."""
        if self.has_head:
            return ""
        if self.pooling == RANK:
            return "a reranker generates no text: imp rerank"
        return "an embedding model generates no text: imp embed"


def advice(*, has_head: bool) -> str:
    """What to write where the files name no pooling: it is never guessed."""
    words = '"last" or "mean"' if has_head else '"mean" or "cls"'
    return f"set {SETTING} to what its author specifies, {words}"


def facts_of(
    core: CoreFacts, metadata: Mapping[str, object], settings: Settings, prompts: TextPrompts, pairs: PairReader | None
) -> EmbeddingFacts:
    """The facts of a model with these prompts, which reads pairs in this way."""
    pooling = _pooling_of(core, metadata, settings)
    ranks = pooling in (RANK, YES_NO)
    is_whole = core.needs_whole_texts and pooling != NONE
    return EmbeddingFacts(
        pooling=pooling,
        dimensions=0 if ranks or pooling == NONE else core.width,
        max_tokens=min(core.max_context, settings.scheduler.step_tokens) if is_whole else core.max_context,
        prompt_names=tuple(prompts.texts),
        takes_instruction=pairs.takes_instruction if ranks and pairs is not None else prompts.takes_instruction,
        reads_pairs=pairs is not None,
        is_matryoshka=_is_matryoshka(metadata, settings),
        has_head=core.has_head,
    )


def _pooling_of(core: CoreFacts, metadata: Mapping[str, object], settings: Settings) -> str:
    """A GGUF file of a reranker that writes its judgement as a token names the pooling of classifiers."""
    named = metadata.get(f"{metadata.get('general.architecture')}.pooling_type")
    is_judge = core.has_head and core.pooling == NONE and named == _GGUF_RANK
    return YES_NO if is_judge or settings.model.overrides.pooling == YES_NO else core.pooling


def _is_matryoshka(metadata: Mapping[str, object], settings: Settings) -> bool:
    """Whether the model says that the first numbers of its vectors are vectors too."""
    wanted = settings.model.overrides.matryoshka
    return "matryoshka_dimensions" in metadata or metadata.get("is_matryoshka") is True if wanted is None else wanted
