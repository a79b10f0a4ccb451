"""The prompt of a text with a gap: what the model's family writes around the parts."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imp_service.api.chat_prompt import InfillPrompt
from imp_service.core import make_error
from imp_service.text import Tokenizer
from imp_service.text.tokens.infill import InfillTokens

NO_INFILL = "the vocabulary of this model has no tokens to fill in the middle"
# No API has the name of the repository, nor that of the file with the gap. These are llama-server's.
REPOSITORY, FILE = "myproject", "filename"


def require_infill(tokenizer: Tokenizer, path: str) -> InfillTokens:
    """The tokens of the model. Raises NOT_SUPPORTED_BY_MODEL if it has none."""
    if tokenizer.infill is None:
        raise make_error("NOT_SUPPORTED_BY_MODEL", f"{path}: {NO_INFILL}", {"feature": path})
    return tokenizer.infill


def infill_ids(tokenizer: Tokenizer, prompt: InfillPrompt, *, begins: bool) -> list[int]:
    """The tokens of a text with a gap. If it `begins` a sequence, the model's first token comes before it."""
    tokens = require_infill(tokenizer, "infill")
    ids = list(next(tokenizer.encode_parts([], add_special_tokens=begins)))
    for piece in _pieces(tokens, prompt):
        if isinstance(piece, int):
            ids.append(piece)
        else:
            ids += _text_ids(tokenizer, tokens, *piece)
    return ids


def _text_ids(tokenizer: Tokenizer, tokens: InfillTokens, text: str, is_first: bool) -> list[int]:
    """A text, also if it spells one of the tokens: some vocabularies have them in any text."""
    ids = tokenizer.encode(text, add_special_tokens=False) if is_first else tokenizer.encode_rest(text)
    if tokens.ends.isdisjoint(ids):
        return ids
    spelled = [tokenizer.token_bytes(token).decode() for token in tokens.ends]
    first, *others = re.split("|".join(f"(?<={re.escape(s[:1])})(?={re.escape(s[1:])})" for s in spelled), text)
    ids = tokenizer.encode(first, add_special_tokens=False) if is_first else tokenizer.encode_rest(first)
    return ids + [token for other in others for token in tokenizer.encode_rest(other)]


# A token, or a text and whether a text begins there, which some vocabularies put a space before.
_Piece = int | tuple[str, bool]


def _pieces(tokens: InfillTokens, prompt: InfillPrompt) -> Iterator[_Piece]:
    prefix = prompt.prefix
    if prompt.files and tokens.repository is not None and tokens.file is not None:
        yield from (tokens.repository, (f"{REPOSITORY}\n", False))
        for each in prompt.files:
            yield from (tokens.file, (f"{each.name}\n{each.text}\n", False))
        yield from (tokens.file, (f"{FILE}\n", False))
    else:
        prefix = "".join(f"{each.name}\n{each.text}\n" for each in prompt.files) + prefix
    if tokens.middle is None:
        yield from (tokens.suffix, (prompt.suffix, True), tokens.prefix, (prefix + prompt.middle, False))
        return
    yield from (tokens.prefix, (prefix, True), tokens.suffix, (prompt.suffix, False), tokens.middle)
    yield prompt.middle, False
