"""Trains tokenizers like those on hubs with the `tokenizers` library, on the texts of our own vocabularies."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

from imp_service.text.tokens.pre_tokenizers import PRE_TOKENIZERS
from support.text.family_templates import FAMILIES
from support.text.own_vocabularies import texts

CHATML = ("<|im_start|>", "<|im_end|>")
SPM = ("<unk>", "<s>", "</s>")
# Found in any text.
PLAIN = ("<think>", "</think>")
BLANKS = ("  ", " ", "\n", "\n\n", "\t", "\u3000")
ODD = (
    "e\u0301",
    "\u00e9",
    "\U0001f600",
    "\u4e16\u754c",
    "\u0915\u094d",
    "'ll",
    "123",
    "1",
    "\ufb01",
    "<0x41>",
    "\u2581",
)


def byte_level(rule: str = "qwen2", *, composes: bool = True, n_tokens: int = 500, **options: Any) -> Tokenizer:
    """Returns a tokenizer like those of Qwen, Llama 3 and GPT: byte alphabet, words split by the pattern of a rule."""
    library = Tokenizer(models.BPE(**options))
    if composes:
        library.normalizer = normalizers.NFC()
    (pattern,) = PRE_TOKENIZERS[rule].steps
    words = pre_tokenizers.Split(Regex(str(pattern)), "isolated")
    library.pre_tokenizer = pre_tokenizers.Sequence(
        [words, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    library.decoder = decoders.ByteLevel()
    library.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    library.train_from_iterator(
        texts(), trainers.BpeTrainer(vocab_size=n_tokens, initial_alphabet=alphabet, show_progress=False)
    )
    return with_tokens(library, CHATML)


def pair_merging(way: str = "prepended", *, n_tokens: int = 700) -> Tokenizer:
    """Returns a tokenizer like those of Llama 2, Mistral and Gemma: U+2581 for spaces, and a token for each byte.

    `way` says what puts a space before a text: the normalizer ("prepended"), Metaspace ("always", "first"), "never".
    """
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=n_tokens - 259, limit_alphabet=200, show_progress=False)
    trained.train_from_iterator(texts(), trainer)
    pieces = list(json.loads(trained.to_str())["model"]["vocab"])
    names = [*SPM, *(f"<0x{byte:02X}>" for byte in range(256)), *pieces]
    ids = {name: i for i, name in enumerate(names)}
    options = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True}
    library = Tokenizer(models.BPE(ids, all_merges(pieces), **options))
    strip: list[Any] = [decoders.Strip(" ", 1, 0)]
    if way == "prepended":
        library.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    elif way == "never":
        library.normalizer, strip = normalizers.Replace(" ", "\u2581"), []
    else:
        library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=way, split=False)
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    library.decoder = decoders.Sequence(steps)
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return with_tokens(library, (*SPM, *CHATML))


def all_merges(pieces: Sequence[str]) -> list[tuple[str, str]]:
    """Returns every pair that makes a piece, in the order of pieces, as converters turn scores into merges."""
    ids = {piece: i for i, piece in enumerate(pieces)}
    merges = []
    for piece in pieces:
        cuts = [(piece[:at], piece[at:]) for at in range(1, len(piece))]
        known = [(left, right) for left, right in cuts if left in ids and right in ids]
        merges += sorted(known, key=lambda pair: (ids[pair[0]], ids[pair[1]]))
    return merges


def unigram(*, scheme: str = "always", composes: bool = False) -> Tokenizer:
    """Returns a tokenizer like those of T5 and similar models, which chooses the most probable pieces."""
    library = Tokenizer(models.Unigram())
    if composes:
        library.normalizer = normalizers.NFKC()
    library.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=scheme)
    library.decoder = decoders.Metaspace(prepend_scheme=scheme)
    trainer = trainers.UnigramTrainer(vocab_size=400, special_tokens=list(SPM), unk_token="<unk>", show_progress=False)
    library.train_from_iterator(texts(), trainer)
    library.post_processor = processors.TemplateProcessing(
        single="$A </s>", pair="$A </s> $B </s>", special_tokens=[("</s>", 2)]
    )
    return with_tokens(library, (*SPM, *CHATML))


BERT = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")


def word_piece(*, lowercase: bool = True, strips_accents: bool | None = None) -> Tokenizer:
    """Returns a tokenizer like BERT's, which puts tokens around a text, and gives the second of a pair another type."""
    library = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    library.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strips_accents)
    library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    library.decoder = decoders.WordPiece(cleanup=False)
    trainer = trainers.WordPieceTrainer(vocab_size=900, special_tokens=list(BERT), show_progress=False)
    library.train_from_iterator(texts(), trainer)
    library.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    return with_tokens(library, (*BERT, *CHATML))


def flagged(library: Tokenizer) -> Tokenizer:
    """Adds tokens with every flag, special ones and others.

    If the normalizer puts spaces into the text, no token has the flag `normalized`: the library finds such a token
    at the beginning of a text or behind a space, and imp also at the beginning of a template's span.
    """
    flags: dict[str, dict[str, Any]] = {
        "left": {"lstrip": True},
        "right": {"rstrip": True},
        "both": {"lstrip": True, "rstrip": True},
        "normal": {"lstrip": True, "rstrip": True, "normalized": True},
    }
    if isinstance(library.normalizer, normalizers.Sequence | normalizers.BertNormalizer):
        del flags["normal"]
    tokens = [
        AddedToken(f"<{kind}-{name}>", special=kind == "s", **{"normalized": False, **named})
        for kind in "sp"
        for name, named in flags.items()
    ]
    tokens += [AddedToken("MASK", special=True, normalized=False, single_word=True)]
    tokens += [AddedToken("word", special=False, normalized=False, single_word=True)]
    library.add_special_tokens([token for token in tokens if token.special])
    library.add_tokens([token for token in tokens if not token.special])
    return library


def harmony() -> Tokenizer:
    """Returns a tokenizer like gpt-oss's."""
    dialect = FAMILIES["harmony"]
    return with_tokens(byte_level("gpt-4o", composes=False), (*dialect.control, dialect.end), plain=())


def tekken() -> Tokenizer:
    """Returns a tokenizer like Ministral 3's, which puts `<s>` before a text."""
    library = with_tokens(
        byte_level("tekken", composes=False, ignore_merges=True), (*SPM, "[INST]", "[/INST]"), plain=()
    )
    library.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", library.token_to_id("<s>"))]
    )
    return library


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte level": byte_level,
    "byte level, llama 3": lambda: byte_level("llama-bpe", composes=False, ignore_merges=True),
    "byte level, gpt-2": lambda: byte_level("gpt-2", composes=False),
    "byte level, gpt-4o": lambda: byte_level("gpt-4o", composes=False),
    "byte level, harmony": harmony,
    "byte level, tekken": tekken,
    "pairs, prepended": pair_merging,
    "pairs, always": lambda: pair_merging("always"),
    "pairs, first": lambda: pair_merging("first"),
    "pairs, never": lambda: pair_merging("never"),
    "unigram": unigram,
    "unigram, first": lambda: unigram(scheme="first", composes=True),
}
# They do not keep the text: letters, accents and spaces change.
WORD_PIECES: dict[str, Callable[[], Tokenizer]] = {
    "word piece": word_piece,
    "word piece, cased": lambda: word_piece(lowercase=False, strips_accents=False),
    "word piece, with accents": lambda: word_piece(strips_accents=False),
}
FLAGS = ("left", "right", "both", "normal")
FLAGGED = (*(f"<{kind}-{name}>" for kind in "sp" for name in FLAGS), "MASK", "word")


@cache
def library_of(kind: str) -> Tokenizer:
    """Returns one of KINDS or WORD_PIECES; trains it once."""
    return {**KINDS, **WORD_PIECES}[kind]()


def with_tokens(library: Tokenizer, special: Sequence[str], plain: Sequence[str] = PLAIN) -> Tokenizer:
    library.add_special_tokens([AddedToken(text, normalized=False, special=True) for text in special])
    library.add_tokens([AddedToken(text, normalized=False) for text in plain])
    return library


def files_of(library: Tokenizer, **config: Any) -> dict[str, bytes]:
    """Returns the metadata of a directory that holds the tokenizer."""
    return {
        "tokenizer.json": library.to_str().encode(),
        "tokenizer_config.json": json.dumps(config).encode(),
    }


def random_texts(n: int, *, seed: int = 1, spelled: Sequence[str] = (*CHATML, *PLAIN)) -> list[str]:
    """Returns pieces of texts in many languages, mixed with special tokens as text, blanks and odd characters."""
    chosen = random.Random(seed)
    found = []
    for _ in range(n):
        pieces = []
        for _ in range(chosen.randint(0, 6)):
            text = chosen.choice(texts())
            begin = chosen.randrange(len(text) + 1)
            pieces += [text[begin : begin + chosen.randint(0, 12)], chosen.choice((*spelled, *BLANKS, *ODD))]
        found.append("".join(pieces))
    return found
