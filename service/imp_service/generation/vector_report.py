"""A report about the vectors that a model file makes. It reads no weights."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service.config.settings import Settings
from imp_service.core.inspect import ModelReport
from imp_service.core.overrides import YES_NO
from imp_service.generation.embedding_facts import NONE, RANK, CoreFacts, EmbeddingFacts, facts_of
from imp_service.generation.pairs import PairReader, find_pair_reader
from imp_service.generation.text_prompts import read_text_prompts
from imp_service.generation.text_side import build_tokenizer
from imp_service.text import TextError


def describe_vectors(report: ModelReport, metadata: Mapping[str, object], settings: Settings) -> EmbeddingFacts | None:
    """None: it is a model that generates text and nothing else."""
    pooling = report.fact("pooling") or NONE
    core = CoreFacts(
        pooling=pooling,
        width=int(report.fact("projections") or report.fact("hidden_size")),
        has_head=report.has_head,
        needs_whole_texts=report.fact("is_two_sided") == "yes" or pooling == "mean",
        max_context=int(report.fact("max_context")),
    )
    prompts = read_text_prompts(metadata)
    facts = facts_of(core, metadata, settings, prompts, None)
    if facts.pooling in (RANK, YES_NO):
        facts = facts_of(core, metadata, settings, prompts, _pairs(report, metadata, settings))
    return None if facts.has_head and facts.pooling == NONE else facts


def _pairs(report: ModelReport, metadata: Mapping[str, object], settings: Settings) -> PairReader | None:
    try:
        return find_pair_reader(build_tokenizer(metadata, settings), metadata, report.architecture)
    except TextError:  # the report on the text has it
        return None


def vectors_text(facts: EmbeddingFacts) -> str:
    """One line about them, for people."""
    if facts.reranks:
        return f"scores ({facts.pooling}) of pairs of at most {facts.max_tokens} tokens: imp rerank"
    if not facts.embeds:
        return f"none: {facts.no_vectors}"
    named = f"; prompts: {', '.join(facts.prompt_names)}" if facts.prompt_names else ""
    return (
        f"{facts.dimensions} numbers ({facts.pooling}) of texts of at most {facts.max_tokens} tokens: imp embed{named}"
    )
