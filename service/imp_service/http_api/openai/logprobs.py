"""Log probabilities in the forms of OpenAI: of chats, and the older one of completions."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from imp_service.api.replies import Candidate, TokenScores
from imp_service.text.tokens.detokenizer import TokenTable

# In place of minus infinity and NaN, which JSON does not have. OpenAI's own API sends this value.
LOWEST = -9999.0
UTF_8 = codecs.getincrementaldecoder("utf-8")


@dataclass(frozen=True, slots=True)
class TokenTexts:
    """The text of single tokens."""

    table: TokenTable
    shows_special: bool
    # Entries contain token ids, so that a caller can continue from any token.
    shows_ids: bool = False

    def content(self, token: int) -> bytes:
        """The bytes that the token adds to the output: none for a hidden control token."""
        if token in self.table.special and not self.shows_special:
            return b""
        return self._bytes(token)

    def text(self, token: int) -> str:
        """The token as text, with U+FFFD where it is part of a character."""
        return self._bytes(token).decode("utf-8", "replace")

    def _bytes(self, token: int) -> bytes:
        """Those of the vocabulary. A candidate may be a row that pads the logits, which has none."""
        known = self.table.token_bytes
        return known[token] if token < len(known) else b""


def chat_entries(
    token_texts: TokenTexts, tokens: Iterable[int], logprobs: Iterable[float], candidates: Sequence[Sequence[Candidate]]
) -> list[dict[str, Any]]:
    """An entry for each token."""
    ranked = candidates or ((),) * len(list(tokens := list(tokens)))
    return [_chat_entry(token_texts, *each) for each in zip(tokens, logprobs, ranked, strict=True)]


def _chat_entry(token_texts: TokenTexts, token: int, logprob: float, candidates: Sequence[Candidate]) -> dict[str, Any]:
    top = [_entry(token_texts, each.token_id, each.logprob) for each in candidates]
    return {**_entry(token_texts, token, logprob), "top_logprobs": top}


def _entry(token_texts: TokenTexts, token: int, logprob: float) -> dict[str, Any]:
    entry = {"token": token_texts.text(token), "bytes": list(token_texts.content(token)), "logprob": finite(logprob)}
    return {**entry, "token_id": token} if token_texts.shows_ids else entry


@dataclass(slots=True)
class CompletionLogprobs:
    """The parallel lists of a completion. Offsets count the characters of the choice's text."""

    token_texts: TokenTexts
    n_top: int
    tokens: list[str] = field(default_factory=list)
    token_logprobs: list[float | None] = field(default_factory=list)
    top_logprobs: list[dict[str, float] | None] = field(default_factory=list)
    text_offset: list[int] = field(default_factory=list)
    # The entries of a chat, which name ids: the lists above have only texts, and two tokens may have the same text.
    content: list[dict[str, Any]] = field(default_factory=list)
    _n_characters: int = 0
    # A character of several tokens counts with its last one.
    _decoder: codecs.IncrementalDecoder = field(default_factory=lambda: UTF_8("replace"))

    def add(self, scores: TokenScores) -> None:
        """Adds consecutive tokens. The first token of a prompt has no log probability."""
        ranked = scores.candidates or [[]] * len(scores.token_ids)
        for token, logprob, items in zip(scores.token_ids, scores.logprobs, ranked, strict=True):
            is_first = math.isnan(logprob)
            self.tokens.append(self.token_texts.text(token))
            self.token_logprobs.append(None if is_first else finite(logprob))
            self.top_logprobs.append(None if is_first or not self.n_top else self._top(items))
            self.text_offset.append(self._n_characters)
            self._n_characters += len(self._decoder.decode(self.token_texts.content(token)))
            if self.token_texts.shows_ids:
                self.content.append(_chat_entry(self.token_texts, token, logprob, items))

    def take(self) -> dict[str, Any]:
        """Returns what was added since the last call, and removes it."""
        taken: dict[str, Any] = {
            "tokens": self.tokens,
            "token_logprobs": self.token_logprobs,
            "top_logprobs": self.top_logprobs if self.n_top else None,
            "text_offset": self.text_offset,
        }
        if self.token_texts.shows_ids:
            taken["content"] = self.content
        self.tokens, self.token_logprobs, self.top_logprobs, self.text_offset, self.content = [], [], [], [], []
        return taken

    def _top(self, items: Sequence[Candidate]) -> dict[str, float]:
        """Log probabilities by text. If two tokens have the same text, the likelier one, which comes first, is kept."""
        found: dict[str, float] = {}
        for each in items:
            found.setdefault(self.token_texts.text(each.token_id), finite(each.logprob))
        return found


def prompt_entries(token_texts: TokenTexts, scores: TokenScores) -> list[dict[str, Any] | None]:
    """The prompt's scores in the form of vLLM: for each token its id, log probability and text; None for the first."""
    found: list[dict[str, Any] | None] = []
    ranked = scores.candidates or [[]] * len(scores.token_ids)
    for token, logprob, items in zip(scores.token_ids, scores.logprobs, ranked, strict=True):
        if math.isnan(logprob):
            found.append(None)
            continue
        known = {each.token_id: each.logprob for each in items} | {token: logprob}
        found.append(
            {
                str(each): {"logprob": finite(value), "decoded_token": token_texts.text(each)}
                for each, value in known.items()
            }
        )
    return found


def finite(logprob: float) -> float:
    """A number that JSON can hold."""
    return logprob if math.isfinite(logprob) else LOWEST
