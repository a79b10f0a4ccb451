"""imp bench: measures the speed of a model, against this machine's limits, or of a server."""

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, image_sizes, integers, positive_integer, positive_integers
from imp_service.cli.bench.server import add_server_options, run_server
from imp_service.cli.failure import CommandError
from imp_service.cli.options.settings import (
    add_model_option,
    add_settings_options,
    find_downloaded_model,
    load_settings_for_each,
    pull_reference,
)
from imp_service.cli.progress import Progress

if TYPE_CHECKING:
    from imp_service.core.bench import BenchPlan, Pictures
    from imp_service.core.bench.json_lines import Encode
    from imp_service.core.bench.sparse_prompts import Divergence
    from imp_service.core.load import LoadedModel


DEFAULT_TYPE = "q8_0"
# The options of each kind of measurement; --reps and --json belong to both.
_MODEL_OPTIONS = (
    *("model", "synthetic", "type", "prefill", "decode", "depth", "batch", "standard", "threads"),
    *("speculation", "replay", "sparse_prefill", "image"),
    *("config", "assignments"),
)
# Of them, those that measure the generation of text alone.
_GENERATION_OPTIONS = ("decode", "depth", "standard", "speculation", "replay", "sparse_prefill", "image")
_SERVER_OPTIONS = (
    *("streams", "prompt_tokens", "tokens", "requests", "html", "served_model"),
    *("tls", "ca", "cert", "key", "token_file", "token_env", "metadata"),
)
EXAMPLES = (
    "imp bench model.gguf --prefill 512,2048 --decode 128 --batch 1,8",
    "imp bench --synthetic 0.6b --type q4_k_m",
    "imp bench model.gguf --speculation --replay answers.jsonl",
    "imp bench model.gguf --sparse-prefill prompts.jsonl --set sparse_prefill.enabled=true",
    "imp bench SmolVLM2-500M.gguf --image 1024x768,512x512",
    "imp bench all-MiniLM-L6-v2 --prefill 32,256 --batch 1,64",
    "imp bench --server 127.0.0.1:50051 --html speed.html",
    "imp bench --server http://127.0.0.1:8000 --streams 1,16",
)


def configure(parser: ArgumentParser) -> None:
    from imp_service.core.synthetic import MIXES, SHAPES

    model = parser.add_mutually_exclusive_group()
    add_model_option(model, "a model file (default: the built-in model)", as_word=True)
    model.add_argument(
        "--synthetic",
        metavar="SHAPE",
        action=Once,
        help=f"random weights of a real shape: {', '.join(SHAPES)}",
    )
    parser.add_argument(
        "--type",
        metavar="TYPE",
        action=Once,
        help=f"with --synthetic: {', '.join(MIXES)} (default: {DEFAULT_TYPE})",
    )
    for option, kind, default, text in (
        ("--prefill", integers, "512", "lengths of prompts, or of texts that become vectors; 0: none"),
        ("--decode", integers, "128", "numbers of tokens to generate; 0: none"),
        ("--depth", integers, "0", "tokens in the cache of a sequence when it begins to generate"),
        ("--batch", positive_integers, "1", "sequences that generate together, or texts that become vectors"),
        ("--threads", positive_integers, "device.threads", "threads to compute with"),
    ):
        parser.add_argument(option, metavar="N,…", type=kind, action=Once, help=f"{text} (default: {default})")
    parser.add_argument(
        "--standard",
        action="store_true",
        help="measure the standard cases instead of those sizes: prompts of 512 to 8192 tokens, one sequence "
        "at depths of 0 to 32768, batches of 1 to 32",
    )
    parser.add_argument(
        "--speculation",
        action="store_true",
        help="also measure steps with 1 to 32 rows of one sequence: how many guesses must be right to pay off",
    )
    parser.add_argument(
        "--replay",
        metavar="FILE",
        type=Path,
        action=Once,
        help='also decode known answers without and with guesses: JSON lines with "prompt" and "answer" as text or '
        'token ids, and optionally "kind"; --decode limits the answers, --batch sets how many run at once',
    )
    parser.add_argument(
        "--sparse-prefill",
        metavar="FILE",
        type=Path,
        action=Once,
        help='also evaluate prompts as a whole and in part: JSON lines with "prompt" as text or token ids; shows the '
        "time to the first token and how the answers differ; --decode sets the tokens of an answer",
    )
    parser.add_argument(
        "--image",
        metavar="WxH,…",
        type=image_sizes,
        action=Once,
        help="also evaluate images of these sizes, each before 64 tokens of text: shows the time to decode, to encode "
        "and to the first token, and how long a running stream waits for it, and for a text of as many tokens",
    )
    parser.add_argument(
        "--reps", metavar="N", type=positive_integer, action=Once, help="repetitions (default: 5; of a server 3)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object with every measurement")
    add_settings_options(parser)
    add_server_options(parser)


def run(arguments: Namespace) -> int:
    others, where = (_SERVER_OPTIONS, "without") if arguments.server is None else (_MODEL_OPTIONS, "with")
    for name in others:
        if getattr(arguments, name) not in (None, False, []):
            option = {"assignments": "set"}.get(name, name).replace("_", "-")
            raise CommandError("USAGE", f"--{option}: has no effect {where} --server")
    return _run_model(arguments) if arguments.server is None else run_server(arguments)


def _run_model(arguments: Namespace) -> int:
    from imp_service.cli.bench.table import write_table
    from imp_service.config.sources import of_option, of_text_option
    from imp_service.core.bench import Tools, run_bench

    if arguments.type is not None and arguments.synthetic is None:
        raise CommandError("USAGE", "--type: given without --synthetic, but a file has its own types")
    pull_reference(arguments)
    find_downloaded_model(arguments)
    model = [] if arguments.model is None else [of_text_option("--model", "model.path", arguments.model)]
    threads = [of_option("--threads", "device.threads", str(n)) for n in arguments.threads or ()]
    configs = load_settings_for_each(arguments, [[*model, each] for each in threads] or [model])
    file = None
    if arguments.synthetic is not None:
        from imp_service.core.synthetic import synthetic_file

        file = synthetic_file(arguments.synthetic, arguments.type or DEFAULT_TYPE)
    plan = replace(_plan(arguments), reps=arguments.reps or 5, has_rows=arguments.speculation)
    option = next((name for name in _GENERATION_OPTIONS if getattr(arguments, name)), "")
    plan = replace(plan, generation_option=option and f"--{option.replace('_', '-')}")
    plan = replace(plan, replay=arguments.replay, sparse_prefill=arguments.sparse_prefill, images=arguments.image or ())
    # Only files of answers and prompts have texts, and a directory may have weights alone.
    has_texts = arguments.replay is not None or arguments.sparse_prefill is not None
    encoder_of = _encoder_of if has_texts and file is None else None
    divergence = None if arguments.sparse_prefill is None else _divergence()
    tools = Tools(encoder_of, divergence, None if arguments.image is None else _pictures_of)
    progress = Progress()
    try:
        report = run_bench(configs, plan, file, progress.show, tools)
    finally:
        progress.clear()
    if arguments.json:
        sys.stdout.write(json.dumps(report.as_json(), indent=1) + "\n")
    else:
        write_table(report, sys.stdout)
    return 0


def _divergence() -> "Divergence":
    from imp_service.generation.divergence import divergence

    return divergence


def _pictures_of(loaded: "LoadedModel") -> "Pictures":
    from imp_service.cli.bench.pictures import pictures_of

    return pictures_of(loaded)


def _encoder_of(loaded: "LoadedModel") -> "Encode":
    from imp_service.generation.text_side import build_tokenizer

    tokenizer = build_tokenizer(loaded.metadata, loaded.config.settings)
    return lambda text: tokenizer.encode(text, add_special_tokens=False)


def _plan(arguments: Namespace) -> "BenchPlan":
    from imp_service.core.bench import STANDARD, BenchPlan

    if arguments.standard:
        for name in ("prefill", "decode", "depth", "batch"):
            if getattr(arguments, name) is not None:
                raise CommandError("USAGE", f"--{name}: has no effect with --standard, which has its own sizes")
        return STANDARD
    given = BenchPlan(
        prefill=_positive(arguments.prefill or (512,)),
        decode=_positive(arguments.decode or (128,)),
        depths=arguments.depth or (0,),
        batches=arguments.batch or (1,),
    )
    return replace(
        given,
        text_tokens=() if arguments.prefill is None else given.prefill,
        text_batches=arguments.batch or given.text_batches,
    )


def _positive(counts_or_none: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(number for number in counts_or_none if number > 0)
