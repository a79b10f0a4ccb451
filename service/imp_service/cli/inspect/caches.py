"""The table of `imp inspect --kv`: what each type of the KV cache costs on a model, in memory and in predictions."""

import math
from argparse import ArgumentTypeError, Namespace
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from imp_service.cli.arguments import UsageError
from imp_service.cli.output import memory_text, write_number_table

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.core import ModelFile


@dataclass(frozen=True, slots=True)
class CacheRow:
    """One type, or a pair. The last three numbers are of the second half of a text."""

    kv_dtype: str
    bytes_per_token: int = 0
    context: int = 0  # tokens that the planned cache holds
    divergence: float = 0  # in nats, from the predictions with an f32 cache
    same_top: float = 0
    perplexity: float = 0
    problem: str = ""  # why the model cannot have it; the numbers are 0 then


@dataclass(frozen=True, slots=True)
class CacheTable:
    """What several types cost on one model."""

    rows: Sequence[CacheRow]
    n_tokens: int  # of the text
    n_compared: int  # places whose predictions are compared
    room_bytes: int  # the planned cache


def cache_words(text: str) -> list[str]:
    """The value of --kv."""
    from imp_service.config.kinds import UnfitError
    from imp_service.config.overrides import KV_DTYPE

    found: list[str] = []
    for word in text.split(","):
        try:
            found.append(KV_DTYPE.read(word))
        except UnfitError as error:
            raise ArgumentTypeError(f"{word}: expected {error}") from None
    return found


def measure_caches(arguments: Namespace, config: "Config", file: "ModelFile") -> CacheTable:
    """Loads the model and runs the text with a cache of each type of --kv, after one of f32."""
    from imp_service.core import Error
    from imp_service.core.load import load_weights
    from imp_service.generation.cache_trial import n_judged, trial_tokens, try_types
    from imp_service.generation.text_side import build_tokenizer

    loaded = load_weights(config, file)
    model = loaded.model
    tokenizer = build_tokenizer(loaded.metadata, config.settings)
    if arguments.text is None:
        tokens = trial_tokens(loaded, tokenizer)
    else:
        tokens = tokenizer.encode(_read_text(arguments))[: model.max_context]
    room = int(model.memory["items"]["kv"])
    rows = []
    for word in dict.fromkeys(("f32", *arguments.kv)):
        try:
            per_token = _bytes_per_token(arguments, file, word)
            found = try_types(loaded, tokens, word)
        except Error as error:
            rows.append(CacheRow(word, problem=error.message))
            continue
        perplexity = math.exp(min(found.nats, 700.0))
        rows.append(CacheRow(word, per_token, room // per_token, found.divergence, found.same_top, perplexity))
    return CacheTable(rows, len(tokens), n_judged(len(tokens)) - 1, room)


def _read_text(arguments: Namespace) -> str:
    try:
        return Path(arguments.text).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(arguments.prog, f"--text: {error}") from None


def _bytes_per_token(arguments: Namespace, file: "ModelFile", word: str) -> int:
    from imp_service.cli.options.settings import read_model_settings
    from imp_service.config.sources import of_text_option
    from imp_service.core.inspect import inspect_model

    config = read_model_settings(arguments, [of_text_option("--kv", "model.overrides.kv_dtype", word)])
    return inspect_model(file, config).memory.kv_bytes_per_token


def write_caches(out: TextIO, table: CacheTable) -> None:
    out.write(
        f"\ncaches: predictions at {table.n_compared} places of a text of {table.n_tokens} tokens, "
        "beside an f32 cache\n"
    )
    head = ("type", "a token", f"tokens in {memory_text(table.room_bytes)}", "KL, nats", "same top token", "perplexity")
    rows = [
        (
            row.kv_dtype,
            memory_text(row.bytes_per_token),
            str(row.context),
            f"{row.divergence:.5f}",
            f"{row.same_top:.1%}",
            f"{row.perplexity:.2f}",
        )
        for row in table.rows
        if not row.problem
    ]
    write_number_table(out, head, rows)
    for row in table.rows:
        if row.problem:
            out.write(f"{row.kv_dtype}: {row.problem}\n")


def caches_object(table: CacheTable) -> Mapping[str, object]:
    """The table for --json."""
    return {"n_tokens": table.n_tokens, "room_bytes": table.room_bytes, "types": [asdict(row) for row in table.rows]}
