"""The added tokens of a model directory: those of tokenizer.json, and what tokenizer_config.json adds to them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from imp_service.text.directory.json_files import JsonObject, read_json_object
from imp_service.text.directory.special_names import SpecialNames
from imp_service.text.tokens.added_tokens import MatchRule

_ADDED_FILE = "added_tokens.json"
_ID = re.compile(r"[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class AddedEntry:
    """An added token."""

    token_id: int
    text: str
    is_special: bool
    match_rule: MatchRule


def read_added(
    document: JsonObject, names: SpecialNames, named: Mapping[str, int], n_rows: int | None
) -> list[AddedEntry]:
    """All added tokens that have an embedding row. `named` are the ids of the model's own tokens.

    An added token without a row is no token: Gemma 3 has one, for images.
    """
    found = {token.text: token for token in _of_tokenizer(document)}
    taken = {token.token_id for token in found.values()} | set(named.values())
    for token in _of_config(names.config):
        if token.text not in found and (token.token_id not in taken or named.get(token.text) == token.token_id):
            found[token.text] = token
    for text in names.special:
        if text in found:
            found[text] = replace(found[text], is_special=True)
        elif text in named:
            found[text] = AddedEntry(named[text], text, True, MatchRule())
    return [token for token in found.values() if n_rows is None or token.token_id < n_rows]


def read_further(files: Mapping[str, bytes], names: SpecialNames, n_rows: int | None) -> list[AddedEntry]:
    """The tokens that are added to a vocabulary without a tokenizer.json, by id: later files replace earlier ones."""
    older = read_json_object(_ADDED_FILE, files.get(_ADDED_FILE, b"{}"))
    found = {}
    for text in older.members:
        token_id = older.token_id(text)
        if not text:
            raise older.fail('""', "expected the name of a token")
        found[token_id] = AddedEntry(token_id, text, text in names.special, MatchRule())
    for token in _of_config(names.config):
        found[token.token_id] = replace(token, is_special=token.is_special or token.text in names.special)
    return [found[i] for i in sorted(found) if n_rows is None or i < n_rows]


def _of_tokenizer(document: JsonObject) -> Iterator[AddedEntry]:
    for entry in document.objects("added_tokens"):
        yield _entry(entry, entry.token_id("id"))


def _of_config(config: JsonObject) -> Iterator[AddedEntry]:
    decoder = config.object("added_tokens_decoder")
    if decoder is None:
        return
    for key in decoder.members:
        entry = decoder.object(key)
        if entry is None or not _ID.fullmatch(key):
            raise decoder.fail(key[:40], "expected an id and its token")
        yield _entry(entry, int(key))


def _entry(entry: JsonObject, token_id: int) -> AddedEntry:
    text = entry.text("content")
    if not text:
        raise entry.fail("content", "missing or empty")
    is_special = entry.flag("special")
    match_rule = MatchRule(
        strips_left=entry.flag("lstrip"),
        strips_right=entry.flag("rstrip"),
        is_whole_word=entry.flag("single_word"),
        is_normalized=entry.flag("normalized", not is_special),
    )
    return AddedEntry(token_id, text, is_special, match_rule)
