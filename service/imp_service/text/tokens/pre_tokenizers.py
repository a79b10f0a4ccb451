r"""How byte-level vocabularies split text into words before merging: one row for each name of `tokenizer.ggml.pre`.

The patterns are those of the models' own tokenizer.json files, in Oniguruma's syntax, which the `tokenizers` library
runs as they are. A piece that no pattern matches stays whole. Names whose rule needs quadratic time (`tiny_aya`,
`cohere2moe`, `superbpe`), code of its own (`afmoe`), another spelling of spaces (`sarvam-moe`, `whitespace`) or an
encoder's separator (`jina-*`, `roberta-bpe`) are left out: an unknown name is an error, since a wrong rule gives
plausible and wrong tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum

from tokenizers import Regex, normalizers, pre_tokenizers


class Step(Enum):
    """Splits that the library has by name."""

    EACH_DIGIT = "each numeric character by itself"
    DIGIT_RUNS = "runs of numeric characters"
    PUNCTUATION_RUNS = "runs of punctuation"
    BYTES = "from here on the text is spelled in the byte alphabet"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """The pre-tokenizer of a name of `tokenizer.ggml.pre`."""

    # Applied in order, each to the pieces of the previous one. A string is a regular expression.
    steps: tuple[str | Step, ...]
    # Canonical composition first, as in the model's own tokenizer: encoding is then not lossless.
    composes: bool = False
    # A word that is a token by itself is taken whole, whatever the merges say.
    ignores_merges: bool = False
    # The default for a file without `add_bos_token`.
    adds_bos: bool = False
    # Spaces are spelled U+2581 and unknown characters as byte tokens, as in SentencePiece.
    is_sentencepiece: bool = False

    def build(self, *, spells_bytes: bool = True) -> pre_tokenizers.PreTokenizer | None:
        """The library's object; None: the text is one piece. `spells_bytes`: words end up in the byte alphabet."""
        steps = [_build_step(step) for step in self.steps]
        if spells_bytes and not self.is_sentencepiece and Step.BYTES not in self.steps:
            steps.append(_build_step(Step.BYTES))
        return pre_tokenizers.Sequence(steps) if steps else None

    def build_normalizer(self) -> normalizers.Normalizer | None:
        """The normalization of the text before it is split."""
        if self.is_sentencepiece:
            return normalizers.Replace(" ", "\u2581")
        return normalizers.NFC() if self.composes else None


def _build_step(step: str | Step) -> pre_tokenizers.PreTokenizer:
    if isinstance(step, str):
        return pre_tokenizers.Split(Regex(step), "isolated")
    match step:
        case Step.EACH_DIGIT:
            return pre_tokenizers.Digits(individual_digits=True)
        case Step.DIGIT_RUNS:
            return pre_tokenizers.Digits(individual_digits=False)
        case Step.PUNCTUATION_RUNS:
            return pre_tokenizers.Punctuation("contiguous")
        case Step.BYTES:
            return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)


_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_LETTERS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
_SYMBOLS_SLASH = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_UP_TO_3_DIGITS = r"\p{N}{1,3}"
_DIGIT = r"\p{N}"


def _either(*patterns: str) -> str:
    return "|".join(patterns)


def _cased_words(suffix: str = "", minus: str = "") -> str:
    """Words that end where lower case turns into upper; `minus` is taken off the letters."""
    upper = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}" + minus + "]"
    lower = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}" + minus + "]"
    head = r"[^\r\n\p{L}\p{N}]?"
    return _either(f"{head}{upper}*{lower}+{suffix}", f"{head}{upper}+{lower}*{suffix}")


_LLAMA3 = _either(_CONTRACTION, _LETTERS, _UP_TO_3_DIGITS, _SYMBOLS, _SPACES)
_MINICPM5 = _either(_CONTRACTION, _LETTERS, r"\p{N}+", _SYMBOLS, _SPACES)
_QWEN2 = _either(_CONTRACTION, _LETTERS, _DIGIT, _SYMBOLS, _SPACES)
_QWEN35 = _either(_CONTRACTION, r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+", _DIGIT, r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*", _SPACES)
_TEKKEN = _either(_cased_words(), _DIGIT, _SYMBOLS_SLASH, _SPACES)
_GPT4O = _either(_cased_words(_CONTRACTION + "?"), _UP_TO_3_DIGITS, _SYMBOLS_SLASH, _SPACES)
_KIMI = _either(
    r"\p{Han}+", _cased_words(_CONTRACTION + "?", minus=r"&&[^\p{Han}]"), _UP_TO_3_DIGITS, _SYMBOLS, _SPACES
)
_YOUTU = _either(_cased_words(_CONTRACTION + "?"), _DIGIT, _SYMBOLS_SLASH, _SPACES)
_YOUTU_SCRIPTS = _either(
    "[\uac00-\ud7a3\u3131-\u318e]+",
    "[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f\ufe30-\ufe4f]+",
    "[\u3105-\u312f]+",
    "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
)
_SEED_CODER = _either(_CONTRACTION, _LETTERS, _DIGIT, r" ?[^\s\p{L}\p{N}\r\n]+", _SPACES)
# Possessive, as published: the optional first character is never given back.
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_EXAONE_MOE = _either(
    _CONTRACTION,
    r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
    _DIGIT,
    r" ?[^\s\p{L}\p{N}]+[\r\n/]?",
    r"\s*[\r\n]|\s+(?!\S)|\s+",
)
_JAIS2 = _either(
    _CONTRACTION,
    _LETTERS,
    _UP_TO_3_DIGITS,
    _SYMBOLS,
    r"\s*[\r\n]+",
    *(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4)),
    r"\s{1,2}(?!\S)",
    r"\s{1}",
)
_SYMBOL_WORDS = _either(
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+""",
    r"[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+",
)
_DEEPSEEK_V3 = _either(_SYMBOL_WORDS, r" ?[\p{P}\p{S}]+[\r\n]*", _SPACES)
_SPARK = _either(_SYMBOL_WORDS, r" ?[\p{P}\p{S}]+", r"[\r\n]", r"\s+(?!\S)", r"\s+")
# The first two are texts that stand for images.
_CHAMELEON = (
    "<sentinel:[0-9]+>",
    "IMGIMG[A-I]{1,4}Z",
    "[\t\n]|    |  ",
    _DIGIT,
    r"[\p{P}!-/:-@\[-`{-~]",
    _WORDS,
)
_CJK = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_CJK_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
# DeepSeek-LLM lists the cased letters it knows one range at a time.
_DEEPSEEK_LETTERS = (
    r"\s?[A-Za-z"
    "\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377"
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556"
    "\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a"
    "\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4"
    "\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc"
    "\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f"
    "\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b"
    "\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2"
    "\U000118a0-\U000118df\U0001e900-\U0001e943]+"
)
_DEEPSEEK_SYMBOLS = r"\s?[!-/:-~" + "\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
# Published as \s+$; the look-behind matches the same and keeps a long run of blanks from being tried at each of them.
_TRAILING_SPACES = r"(?<!\s)\s+$"
_BLOOM = r" ?[^(\s|.,!?" + "\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c" + ")]+"
_LINES = r"[^\n]+|[\n]+"

_GPT2_RULE = PreTokenizer((_WORDS,))
_STARCODER_RULE = PreTokenizer((Step.EACH_DIGIT, _WORDS))
_LLAMA3_RULE = PreTokenizer((_LLAMA3,), ignores_merges=True, adds_bos=True)
_QWEN2_RULE = PreTokenizer((_QWEN2,))
_BLOOM_RULE = PreTokenizer((_BLOOM,))
_GPT4O_RULE = PreTokenizer((_GPT4O,))
_DEEPSEEK_V3_RULE = PreTokenizer((_UP_TO_3_DIGITS, _CJK_KANA, _DEEPSEEK_V3))
_BAILING_RULE = PreTokenizer((_BAILING,))
_CHATGLM_RULE = PreTokenizer((_LLAMA3,))

_ROWS: tuple[tuple[tuple[str, ...], PreTokenizer], ...] = (
    # Not the rule of a model: llama.cpp uses it for files that name none. Its punctuation lacks the backtick.
    (("default",), PreTokenizer((r"[\p{P}$+<=>^~|]+", _WORDS, Step.DIGIT_RUNS, "[0-9][0-9][0-9]"))),
    (
        ("gpt-2", "phi-2", "jais", "trillion", "granite-docling", "gigachat", "a.x-4.0", "mellum", "exaone4"),
        _GPT2_RULE,
    ),
    (("mpt", "olmo"), replace(_GPT2_RULE, composes=True)),
    (("starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"), _STARCODER_RULE),
    (("command-r",), replace(_STARCODER_RULE, composes=True)),
    (
        ("llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2"),
        _LLAMA3_RULE,
    ),
    (("dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "glm5"), _CHATGLM_RULE),
    (("jais-2",), PreTokenizer((_JAIS2,))),
    (("minicpm5",), PreTokenizer((_UP_TO_3_DIGITS, _MINICPM5), ignores_merges=True)),
    (("qwen2",), replace(_QWEN2_RULE, composes=True)),
    (
        ("deepseek-r1-qwen", "kormo", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"),
        _QWEN2_RULE,
    ),
    (("qwen35",), PreTokenizer((_QWEN35,), composes=True)),
    (("laguna",), PreTokenizer((_LINES, _QWEN2))),
    (("seed-coder",), PreTokenizer((_SEED_CODER,))),
    (("tekken",), PreTokenizer((_TEKKEN,), ignores_merges=True, adds_bos=True)),
    (("gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie"), _GPT4O_RULE),
    (("kimi-k2",), PreTokenizer((_KIMI,))),
    (("youtu",), PreTokenizer((_YOUTU_SCRIPTS, _YOUTU), ignores_merges=True)),
    (("bailingmoe", "bailingmoe2", "llada-moe"), _BAILING_RULE),
    (("exaone-moe",), PreTokenizer((_EXAONE_MOE,))),
    (("spark2_5",), PreTokenizer((_DIGIT, _CJK_KANA, _SPARK))),
    (("chameleon",), PreTokenizer(_CHAMELEON, adds_bos=True)),
    (("bloom", "gpt3-finnish", "poro-chat"), _BLOOM_RULE),
    (("viking",), PreTokenizer((_BLOOM, Step.EACH_DIGIT))),
    # This rule splits digits after the conversion to the byte alphabet, so some pieces end inside a character.
    (
        ("falcon",),
        PreTokenizer((Step.PUNCTUATION_RUNS, _WORDS, Step.BYTES, Step.DIGIT_RUNS, "[0-9][0-9][0-9]")),
    ),
    (
        ("deepseek-llm",),
        PreTokenizer(("[\r\n]", _DEEPSEEK_LETTERS, _DEEPSEEK_SYMBOLS, _TRAILING_SPACES, _CJK, Step.EACH_DIGIT)),
    ),
    (("deepseek-coder",), PreTokenizer(("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _CJK, Step.EACH_DIGIT))),
    (("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), _DEEPSEEK_V3_RULE),
    (("gemma4",), PreTokenizer((), adds_bos=True, is_sentencepiece=True)),
)

PRE_TOKENIZERS = {name: rule for names, rule in _ROWS for name in names}
