"""How a tokenizer.json treats text before and after its model: recognized by the names of its parts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from imp_service.text.directory.json_files import JsonObject
from imp_service.text.directory.pattern_cost import FASTER
from imp_service.text.directory.post_processor import Around, around_of
from imp_service.text.tokens.piece_types import SPACE_MARK, VocabularyKind
from imp_service.text.tokens.pre_tokenizers import PRE_TOKENIZERS, Step
from imp_service.text.tokens.vocabulary import CutRules, Prefix

_LIST_OF_PARTS = {
    "normalizer": "normalizers",
    "pre_tokenizer": "pretokenizers",
    "post_processor": "processors",
}
_MODELS = ("BPE", "Unigram", "WordPiece")
# They treat each character by itself, and none across a space: a text may be cut there.
_OF_CHARACTERS = ("BertNormalizer", "Lowercase", "StripAccents", "NFD")
# How many times longer than a text its normalized form may be. Spaces spelled U+2581 make it 3 times as long.
MAX_GROWTH = 16
# The most parts before or after the model, and ids around a text. Published files have up to ten.
MOST_PARTS = 64
# Patterns whose words may be encoded one by one: those of GGUF files, which the tests try on long texts.
KNOWN_PATTERNS = frozenset(
    step for rule in PRE_TOKENIZERS.values() for step in rule.steps if not isinstance(step, Step)
)


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The facts of a tokenizer.json that are not its vocabulary."""

    kind: VocabularyKind
    prefix: Prefix
    cut_rules: CutRules
    # Decoding restores the text, except that its characters are composed (NFC).
    is_lossless: bool
    around: Around


def read_pipeline(document: JsonObject) -> Pipeline:
    """Raises TokenizerInvalid for a model or a way to spell text that imp does not read."""
    model = _model_of(document)
    normalizers = list(parts_of(document, "normalizer"))
    splitters = list(parts_of(document, "pre_tokenizer"))
    _check_growth(document, normalizers)
    kind = _kind_of(document, model, normalizers, splitters)
    changes = [part for part in normalizers if not _keeps_text(part)]
    return Pipeline(
        kind=kind,
        prefix=_prefix_of(normalizers, splitters),
        cut_rules=_cut_rules_of(kind, normalizers, splitters, is_plain=not changes),
        is_lossless=not changes,
        around=_around(document),
    )


def parts_of(document: JsonObject, name: str) -> Iterator[JsonObject]:
    """The parts of a sequence in order, or the only one."""
    part = document.object(name)
    if part is None:
        return
    for i, found in enumerate(_flat(part, _LIST_OF_PARTS[name])):
        if i == MOST_PARTS:
            raise document.fail(name, f"more than {MOST_PARTS} parts")
        yield found


def _flat(part: JsonObject, name_of_list: str) -> Iterator[JsonObject]:
    if type_of(part) != "Sequence":
        yield part
        return
    for inner in part.objects(name_of_list):
        yield from _flat(inner, name_of_list)


def type_of(part: JsonObject) -> str:
    """Returns the type of a part, by the library's name."""
    return part.text("type") or ""


def pattern_of(part: JsonObject) -> str | None:
    """The regular expression of a part, if it has one."""
    pattern = part.members.get("pattern")
    return pattern.get("Regex") if isinstance(pattern, dict) and isinstance(pattern.get("Regex"), str) else None


def _model_of(document: JsonObject) -> str:
    model = document.object("model")
    if model is None:
        raise document.fail("model", "missing")
    # Old files do not name it.
    found = model.text("type") or ("BPE" if "merges" in model.members else "")
    if found not in _MODELS:
        raise model.fail("type", f"{found or 'missing'}, expected one of {', '.join(_MODELS)}")
    return found


def _kind_of(
    document: JsonObject, model: str, normalizers: list[JsonObject], splitters: list[JsonObject]
) -> VocabularyKind:
    if model == "WordPiece":
        _require_bert_words(document, splitters)
        return VocabularyKind.WORD_PIECE
    spells_bytes = any(type_of(part) == "ByteLevel" for part in splitters)
    marks_spaces = any(_marks_spaces(part) for part in (*normalizers, *splitters))
    if any(type_of(part) == "ByteLevel" for part in normalizers):
        raise document.fail("normalizer", "ByteLevel, which imp reads as a pre-tokenizer only")
    if spells_bytes and model == "BPE":
        return VocabularyKind.BYTE_LEVEL
    if marks_spaces and not spells_bytes:
        return VocabularyKind.LISTED_MERGES if model == "BPE" else VocabularyKind.UNIGRAM
    expected = "ByteLevel, or spaces spelled \u2581" if model == "BPE" else "spaces spelled \u2581"
    found = ", ".join(type_of(part) for part in splitters) or "none"
    raise document.fail("pre_tokenizer", f"{found}, expected with {model}: {expected}")


def _require_bert_words(document: JsonObject, splitters: list[JsonObject]) -> None:
    found = [type_of(part) for part in splitters]
    if found != ["BertPreTokenizer"]:
        raise document.fail("pre_tokenizer", f"{', '.join(found) or 'none'}, expected with WordPiece: BertPreTokenizer")


def _check_growth(document: JsonObject, normalizers: list[JsonObject]) -> None:
    """Refuses replacements that together could make a text much longer."""
    growth = 1.0
    for part in normalizers:
        prefix = part.members.get("prepend")
        if isinstance(prefix, str):
            growth *= max(1, len(prefix.encode()) / len(SPACE_MARK.encode()))
        content, pattern = part.members.get("content"), part.members.get("pattern")
        if type_of(part) != "Replace" or not isinstance(content, str) or not isinstance(pattern, dict):
            continue
        n_bytes, replaced = len(content.encode()), pattern.get("String")
        # A regular expression matches one byte or more, or between two bytes.
        growth *= max(1.0, n_bytes / len(replaced.encode())) if isinstance(replaced, str) and replaced else 1 + n_bytes
    if growth > MAX_GROWTH:
        raise document.fail("normalizer", f"may make a text {growth:.0f} times as long, limit {MAX_GROWTH}")


def _marks_spaces(part: JsonObject) -> bool:
    """The part spells a space U+2581."""
    if type_of(part) == "Metaspace":
        return bool(part.members.get("replacement", SPACE_MARK) == SPACE_MARK)
    return bool(
        type_of(part) == "Replace"
        and part.members.get("pattern") == {"String": " "}
        and part.members.get("content") == SPACE_MARK
    )


def _keeps_text(normalizer: JsonObject) -> bool:
    is_prefix = type_of(normalizer) == "Prepend" and normalizer.members.get("prepend") == SPACE_MARK
    return is_prefix or _marks_spaces(normalizer) or type_of(normalizer) == "NFC"


def _prefix_of(normalizers: list[JsonObject], splitters: list[JsonObject]) -> Prefix:
    if any(type_of(part) == "Prepend" for part in normalizers):
        return Prefix.NORMALIZED
    for part in splitters:
        if type_of(part) == "ByteLevel" and part.flag("add_prefix_space", True):
            return Prefix.EACH
        if type_of(part) == "Metaspace":
            by_flag = "always" if part.flag("add_prefix_space", True) else "never"
            scheme = part.text("prepend_scheme") or by_flag
            return {"never": Prefix.NONE, "first": Prefix.FIRST}.get(scheme, Prefix.EACH)
    return Prefix.NONE


def _cut_rules_of(
    kind: VocabularyKind, normalizers: list[JsonObject], splitters: list[JsonObject], *, is_plain: bool
) -> CutRules:
    if kind is VocabularyKind.WORD_PIECE:
        is_allowed = all(type_of(part) in _OF_CHARACTERS for part in normalizers)
        return CutRules(has_plain_words=False, splits_at_spaces=True, composes=False, is_allowed=is_allowed)
    cuts_at_spaces = any(type_of(part) == "Metaspace" and part.flag("split", True) for part in splitters)
    *before, last = [type_of(part) for part in splitters] or [""]
    spells_last = last == "ByteLevel" and "ByteLevel" not in before
    has_no_space = any(_marks_spaces(part) for part in normalizers)
    is_known = all(_is_known(part, has_no_space=has_no_space) for part in splitters)
    puts_space_into_words = kind is VocabularyKind.BYTE_LEVEL and _prefix_of(normalizers, splitters) is not Prefix.NONE
    return CutRules(
        has_plain_words=kind is VocabularyKind.BYTE_LEVEL and spells_last,
        splits_at_spaces=kind is VocabularyKind.BYTE_LEVEL or cuts_at_spaces,
        composes=any(type_of(part) == "NFC" for part in normalizers),
        is_allowed=is_plain and is_known and not puts_space_into_words,
    )


def _is_known(splitter: JsonObject, *, has_no_space: bool) -> bool:
    if type_of(splitter) == "Split":
        if has_no_space and splitter.members.get("pattern") == {"String": " "}:
            return True  # as Gemma has it: there is nothing to split
        return FASTER.get(pattern_of(splitter) or "", pattern_of(splitter)) in KNOWN_PATTERNS
    return type_of(splitter) in ("ByteLevel", "Metaspace", "Digits", "Punctuation")


def _around(document: JsonObject) -> Around:
    """What the parts of the post-processor put around a text. Only one of them may know pairs."""
    whole = Around()
    found = [around for part in parts_of(document, "post_processor") if (around := around_of(part)) is not None]
    for each in found:
        whole = Around(each.before + whole.before, whole.after + each.after, each.pair if len(found) == 1 else None)
    if max(len(whole.before), len(whole.after)) > MOST_PARTS:
        raise document.fail("post_processor", f"more than {MOST_PARTS} ids around a text")
    return whole
