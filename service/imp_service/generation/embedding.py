"""Texts and pairs of texts as inputs of one model: checked, tokenized, cut to the model's length.

A call goes through three steps. What is wrong with its options is found quickly. `plan_texts` or `plan_documents`
tokenizes its inputs, on any thread. A `VectorRun` feeds the plans to the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from imp_service.api.errors import Violation, invalid
from imp_service.api.facts import findings
from imp_service.api.rules import token_violations
from imp_service.api.vectors import EmbedOptions, EmbedRequest, RerankOptions, RerankRequest, TextOrIds
from imp_service.core import make_error
from imp_service.generation.embedding_facts import EmbeddingFacts
from imp_service.generation.input_lengths import LengthRule
from imp_service.generation.limits import EngineLimits, refuse_findings
from imp_service.generation.pairs import InputPlan, PairReader
from imp_service.generation.scoring import Scorer
from imp_service.generation.text_prompts import TextPrompts
from imp_service.text import FieldInvalid, TextSpan, Tokenizer


@dataclass(frozen=True, slots=True)
class CallPlan:
    """The inputs of a call, in their order."""

    inputs: Sequence[InputPlan]
    options: EmbedOptions | RerankOptions
    priority: int = 0
    tenant: str = ""
    # How the engine's answers become scores; None: they are vectors.
    scorer: Scorer | None = None

    @property
    def prompt_tokens(self) -> int:
        """The tokens of all inputs."""
        return sum(len(each.ids) for each in self.inputs)

    @property
    def truncated(self) -> tuple[int, ...]:
        """The inputs that were cut, by their indices."""
        return tuple(i for i, each in enumerate(self.inputs) if each.is_cut)


class Embedder:
    """What a loaded model makes of texts. May be used from any thread."""

    def __init__(
        self,
        facts: EmbeddingFacts,
        tokenizer: Tokenizer,
        prompts: TextPrompts,
        pairs: PairReader | None,
        *,
        scorer: Scorer,
        truncate: str,
        limits: EngineLimits,
    ) -> None:
        """`truncate` is what requests do that do not say it. `limits` check the requests of the library."""
        self.facts = facts
        self._truncate = truncate
        self._tokenizer = tokenizer
        self._prompts = prompts
        self._pairs = pairs
        self._scorer = scorer
        self._limits = limits

    def require_embeddings(self) -> None:
        """Raises NOT_SUPPORTED_BY_MODEL, with advice, if the model makes no vectors."""
        _require(self.facts.no_vectors, "embeddings")

    def require_reranking(self) -> None:
        """The same for scores of pairs."""
        _require(self.facts.no_scores, "rerank")

    def require_generation(self) -> None:
        """The same for text that the model writes."""
        _require(self.facts.no_text, "generation")

    def embed_violations(self, request: EmbedRequest) -> Iterator[Violation]:
        """What this model cannot do of a request whose options are otherwise right."""
        options, width = request.options, self.facts.dimensions
        if options.dimensions is not None and options.dimensions > width:
            yield Violation("dimensions", f"{options.dimensions}, expected at most {width}, those of the model")
        yield from self._prompts.violations(options.prompt_name, options.instruction)
        n_around = sum(map(len, self._tokenizer.around)) if options.add_special_tokens else 0
        yield from self._length_violations(options.max_tokens, n_around)

    def rerank_violations(self, request: RerankRequest) -> Iterator[Violation]:
        """The same for a ranking."""
        options = request.options
        if options.instruction and not (self._pairs is not None and self._pairs.takes_instruction):
            yield Violation("instruction", "set, but this model has no place for it")
        yield from self._length_violations(options.max_tokens, 0)

    def _length_violations(self, most: int | None, n_around: int) -> Iterator[Violation]:
        limit = self.facts.max_tokens
        if most is not None and not n_around < most <= limit:
            yield Violation("max_tokens", f"{most}, expected {n_around + 1} to {limit}, the model's limit")

    def check_embed(self, request: EmbedRequest) -> None:
        """Raises what is wrong with a request of the library. A server has rules of its own."""
        self.require_embeddings()
        refuse_findings([*_text_violations(request.texts, self._limits.n_tokens), *_own(request, self._limits)])
        refuse_findings(self.embed_violations(request))

    def check_rerank(self, request: RerankRequest) -> None:
        """The same for a ranking."""
        self.require_reranking()
        texts = [("query", request.query), *((f"documents[{i}]", each) for i, each in enumerate(request.documents))]
        found = [Violation(path, "expected a text that is not empty") for path, text in texts if not _is_text(text)]
        refuse_findings([*found, *_own(request, self._limits)])
        refuse_findings(self.rerank_violations(request))

    def plan_texts(self, request: EmbedRequest) -> CallPlan:
        """Tokenizes the texts of a checked request.

        Raises CONTEXT_TOO_LONG with the details index, prompt_tokens and max_context_tokens.
        """
        options = request.options
        prompt = self._prompts.spans(options.prompt_name, options.instruction)
        around = self._tokenizer.around if options.add_special_tokens else ((), ())
        rule = self._rule(options)
        inputs = []
        for i, ids in enumerate(self._ids_of(request.texts, prompt)):
            before, after = around if isinstance(request.texts[i], str) else ((), ())
            kept = rule.cut(ids, len(before) + len(after), i)
            whole = [*before, *kept, *after]
            if not whole:
                raise invalid(f"texts[{i}]", "has no token")
            inputs.append(InputPlan(whole, is_cut=len(kept) < len(ids)))
        return CallPlan(inputs, options, request.priority, request.tenant)

    def plan_documents(self, request: RerankRequest) -> CallPlan:
        """The same for a query with each document."""
        pairs = [(request.query, document) for document in request.documents]
        return self.plan_pairs(pairs, request.options, priority=request.priority, tenant=request.tenant)

    def plan_pairs(
        self, pairs: Sequence[tuple[str, str]], options: RerankOptions, *, priority: int = 0, tenant: str = ""
    ) -> CallPlan:
        """The same for pairs of a query and a document of its own."""
        self.require_reranking()
        assert self._pairs is not None  # narrows
        rule, most, instruction = self._rule(options), options.max_document_tokens, options.instruction
        inputs = []
        for i, pair in enumerate(pairs):
            with _naming(f"documents[{i}]"):
                inputs.append(self._pairs.plan(pair, rule, i, most_of_document=most, instruction=instruction))
        return CallPlan(inputs, options, priority, tenant, self._scorer)

    def approximation(self, options: EmbedOptions) -> str:
        """The value of the reply's head `imp-approximations`, of vectors that are shorter than the model says it makes.

        Empty if the vectors are the model's own.
        """
        is_cut = options.dimensions is not None and options.dimensions < self.facts.dimensions
        return f"dimensions={options.dimensions}" if is_cut and not self.facts.is_matryoshka else ""

    def _rule(self, options: EmbedOptions | RerankOptions) -> LengthRule:
        most = self.facts.max_tokens if options.max_tokens is None else min(options.max_tokens, self.facts.max_tokens)
        return LengthRule(most, options.truncate or self._truncate)

    def _ids_of(self, texts: Sequence[TextOrIds], prompt: Sequence[TextSpan]) -> list[list[int]]:
        """The tokens of each text, without those around it."""
        spans = [[*prompt, TextSpan(text, False)] if isinstance(text, str) else [] for text in texts]
        try:
            found = self._tokenizer.encode_many(spans)
        except FieldInvalid:  # finds out which
            found = []
            for i, each in enumerate(spans):
                with _naming(f"texts[{i}]"):
                    found.append(self._tokenizer.encode_spans(each, add_special_tokens=False))
        return [ids if isinstance(text, str) else list(map(int, text)) for text, ids in zip(texts, found, strict=True)]


def _require(missing: str, feature: str) -> None:
    """`missing`: why the model does not do it; empty if it does."""
    if missing:
        raise make_error("NOT_SUPPORTED_BY_MODEL", missing, {"feature": feature})


def _is_text(text: object) -> bool:
    return isinstance(text, str) and bool(text)


def _text_violations(texts: object, n_tokens: int) -> Iterator[Violation]:
    if isinstance(texts, str | bytes | Mapping) or not isinstance(texts, Sequence):
        yield Violation("texts", f"{type(texts).__name__}, expected a list of texts, or of lists of token ids")
        return
    for i, text in enumerate(texts):
        if isinstance(text, bytes | Mapping) or not isinstance(text, Sequence):
            yield Violation(f"texts[{i}]", f"{type(text).__name__}, expected a text, or a list of token ids")
        elif not text:
            yield Violation(f"texts[{i}]", "empty")
        elif not isinstance(text, str):
            yield from token_violations(f"texts[{i}]", text, n_tokens)


def _own(request: EmbedRequest | RerankRequest, limits: EngineLimits) -> Iterator[Violation]:
    """What is wrong with the options, by their own names."""
    for each in findings(request, limits):
        if isinstance(each, Violation):
            yield Violation(each.path.removeprefix("options."), each.message)


@contextmanager
def _naming(path: str) -> Iterator[None]:
    """An error of the tokenizer names the input."""
    try:
        yield
    except FieldInvalid as error:
        raise invalid(path, error.message) from error
