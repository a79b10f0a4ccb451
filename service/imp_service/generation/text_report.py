"""A report about a model file's tokenizer, chat template and end tokens. It reads no weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imp_service.config.settings import Settings
from imp_service.generation.defaults import DefaultSampler, default_sampling
from imp_service.generation.embedding_facts import EmbeddingFacts
from imp_service.generation.text_side import TextSide
from imp_service.text import TemplateInvalid, TextError
from imp_service.text.templates.choice import read_sources
from imp_service.text.tokens.piece_types import VocabularyKind
from imp_service.text.tokens.special_tokens import EndSources, read_stated_ends


@dataclass(frozen=True, slots=True)
class EndToken:
    """A token that ends a text, and the keys and settings that name it."""

    token_id: int
    text: str  # empty without a tokenizer
    sources: Sequence[str]


@dataclass(frozen=True, slots=True)
class TextReport:
    """`fault` and `template_fault` are the errors that a start would raise, or empty."""

    tokenizer: str
    fault: str
    has_template: bool
    template_fault: str
    # How the model writes reasoning and tool calls; empty without a tokenizer.
    dialect: str
    ends: Sequence[EndToken]
    warnings: Sequence[str]
    # What it does besides, by the names of TextSide.
    capabilities: Sequence[str]
    # What a request that sets no sampling option gets.
    sampler: DefaultSampler
    # What it makes of texts; None: it generates text and nothing else.
    vectors: EmbeddingFacts | None = None


def describe_text(
    metadata: Mapping[str, object], settings: Settings, vocab_size: int, n_tokens: int, *, has_head: bool
) -> TextReport:
    """Builds tokenizer and templates, and reports. Raises ConfigError if a template file cannot be read."""
    sampler = default_sampling(metadata, settings.model.overrides.default_sampling)
    try:
        side = TextSide(metadata, settings, vocab_size)
    except TextError as error:
        ends = [EndToken(i, "", sources) for i, sources in _stated(metadata, n_tokens, settings).items()]
        return TextReport("", str(error), _has_template(metadata), "", "", ends, (), (), sampler)
    tokenizer, fault, warnings = side.tokenizer, "", []
    try:
        warnings = side.templates.compile_all()
    except TemplateInvalid as error:
        fault = str(error)
    words = f", pre-tokenizer {tokenizer.pre}" if tokenizer.pre and tokenizer.kind is VocabularyKind.BYTE_LEVEL else ""
    return TextReport(
        tokenizer=f"{tokenizer.kind.value}{words}, {tokenizer.vocab_size} tokens",
        fault="",
        has_template=side.template_source is not None,
        template_fault=fault,
        dialect=side.dialect.name,
        ends=[
            EndToken(i, tokenizer.token_bytes(i).decode("utf-8", "replace"), sources)
            for i, sources in tokenizer.special.ends.items()
        ],
        warnings=warnings,
        capabilities=side.capabilities(has_head=has_head),
        sampler=sampler,
    )


def _has_template(metadata: Mapping[str, object]) -> bool:
    try:
        return bool(read_sources(metadata))
    except TextError:
        return True


def _stated(metadata: Mapping[str, object], n_tokens: int, settings: Settings) -> EndSources:
    try:
        return read_stated_ends(metadata, n_tokens, settings.model.overrides.eos_token_ids)
    except TextError:
        return {}
