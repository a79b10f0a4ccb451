"""Cuts a prompt into segments: special tokens, and the text between them in parts that the library encodes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from imp_service.text.errors import FieldInvalid
from imp_service.text.tokens.backends import Backends
from imp_service.text.tokens.splitter import Found
from imp_service.text.tokens.text_cuts import TextCuts, TextPart
from imp_service.text.tokens.vocabulary import Prefix, Vocabulary


@dataclass(frozen=True, slots=True)
class TextSpan:
    """A part of a prompt, and whether special tokens spelled in it are parsed."""

    text: str
    parses_special_tokens: bool


class Segmenter:
    """The segments of one vocabulary's texts. May be used from any thread."""

    def __init__(self, vocabulary: Vocabulary, backends: Backends) -> None:
        self._vocabulary = vocabulary
        self._splitter = backends.splitter
        self.cuts = TextCuts(
            vocabulary,
            backends.first.pre_tokenizer,
            cuts_prefix=backends.rest is backends.first,
            adds_prefix=backends.is_sentencepiece,
        )
        self._spellable = bytes(set(range(256)) - set(vocabulary.missing_bytes))

    def segments(self, spans: Sequence[TextSpan]) -> Iterator[Found | TextPart]:
        """Special tokens and the joined text between them, long texts in parts.

        Blanks that a special token strips are not encoded.
        """
        pending: list[str] = []
        takes_prefix, swallowed = True, ""
        for piece in self._pieces(spans):
            if isinstance(piece, str):
                kept = piece.lstrip(swallowed) if swallowed else piece
                if kept != piece:
                    yield TextPart(piece[: len(piece) - len(kept)], "")
                pending.append(kept)
                swallowed = "" if kept else swallowed
                continue
            stripped = ""
            if isinstance(piece, Found):
                pending, stripped = _without_end(pending, self._splitter.strips_left(piece.token_id))
            takes_prefix_later = takes_prefix and not any(pending)
            yield from self.cuts.joined(pending, takes_prefix=takes_prefix)
            takes_prefix = takes_prefix_later
            if isinstance(piece, Found):
                yield Found(piece.token_id, stripped + piece.text)
                takes_prefix = self._takes_prefix_after(piece.token_id)
                swallowed = self._splitter.strips_right(piece.token_id)
            elif isinstance(piece, TextPart):
                yield piece
        yield from self.cuts.joined(pending, takes_prefix=takes_prefix)

    def _takes_prefix_after(self, token_id: int) -> bool:
        if self._vocabulary.prefix is Prefix.NORMALIZED:
            return self._splitter.ends_segment(token_id)
        return self._vocabulary.prefix is Prefix.EACH

    def _pieces(self, spans: Sequence[TextSpan]) -> Iterator[Found | TextPart | str | None]:
        """Special tokens and what is between them; None where a text is cut."""
        joined = _join_alike(spans)
        begins_segment = True
        for i, (text, parses) in enumerate(joined):
            self._require_spellable(text)
            before = joined[i - 1][0][-1:] if i else ""
            after = joined[i + 1][0][:1] if i + 1 < len(joined) else ""
            position = 0
            for part in self.cuts.parts(text):
                if position:
                    yield None
                    before = text[position - 1]
                position += len(part)
                pieces: Iterable[Found | TextPart | str] = (part,)
                if parses:
                    after_part = text[position : position + 1] or after
                    pieces = self._splitter.split(part, before=before, after=after_part, begins_segment=begins_segment)
                for piece in pieces:
                    yield piece
                    begins_segment = isinstance(piece, Found) and self._splitter.ends_segment(piece.token_id)

    def _require_spellable(self, text: str) -> None:
        try:
            raw = text.encode()
        except UnicodeEncodeError as error:
            raise FieldInvalid("text", f"a surrogate at character {error.start}") from error
        unspellable = raw.translate(None, self._spellable) if self._vocabulary.missing_bytes else b""
        if unspellable:
            raise FieldInvalid("text", f"byte 0x{unspellable[0]:02X} has no token in this model's vocabulary")


def _join_alike(spans: Sequence[TextSpan]) -> list[tuple[str, bool]]:
    """Joins neighbouring spans that are parsed in the same way: a token may span their border."""
    joined: list[tuple[list[str], bool]] = []
    for span in spans:
        if joined and joined[-1][1] == span.parses_special_tokens:
            joined[-1][0].append(span.text)
        else:
            joined.append(([span.text], span.parses_special_tokens))
    return [("".join(texts), parses) for texts, parses in joined]


def _without_end(texts: list[str], stripped: str) -> tuple[list[str], str]:
    """The texts without such characters at their end, and those characters."""
    if not stripped:
        return texts, ""
    joined = "".join(texts)
    kept = joined.rstrip(stripped)
    return [kept], joined[len(kept) :]
