"""imp inspect: shows what a model file holds, the memory that it needs and whether it fits, without loading it."""

import json
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, UsageError
from imp_service.cli.inspect.caches import cache_words, caches_object, measure_caches, write_caches
from imp_service.cli.inspect.fingerprint import fingerprint_of_file, write_fingerprint
from imp_service.cli.options.settings import (
    MODEL_HELP,
    add_context_option,
    add_draft_option,
    add_model_option,
    add_projector_option,
    add_settings_options,
    load_model_settings,
)

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.core import ModelFile
    from imp_service.core.inspect import ModelReport


EXAMPLES = (
    "imp inspect model.gguf",
    "imp inspect --check --tensors model.gguf",
    "imp inspect --kv bf16,q8_0,rot8,rot8/rot4 model.gguf",
    "imp inspect --fingerprint model.gguf",
    "imp inspect hf:Qwen/Qwen3-0.6B-GGUF:Q8_0",
)


def configure(parser: ArgumentParser) -> None:
    add_model_option(parser, MODEL_HELP, as_word=True)
    parser.add_argument("--check", action="store_true", help="read the whole file, its tokenizer and chat template too")
    parser.add_argument("--values", action="store_true", help="with --check: look for weights that are NaN or infinite")
    parser.add_argument("--tensors", action="store_true", help="list every tensor with the kernels that run on it")
    parser.add_argument(
        "--kv",
        metavar="TYPE,…",
        type=cache_words,
        action=Once,
        help="load the model, and show what cache types cost in memory and predictions; e.g. rot8,rot8/rot4",
    )
    parser.add_argument(
        "--text", metavar="FILE", action=Once, help="with --kv: measure on this text (default: a short bundled one)"
    )
    parser.add_argument(
        "--fingerprint",
        action="store_true",
        help="load the model, and show what decides its tokens; servers with the same digest give the same tokens",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(prog=parser.prog, is_brief=False)  # imp pull sets is_brief
    add_draft_option(parser, "plan also for guesses of")
    add_projector_option(parser)
    add_context_option(parser)
    add_settings_options(parser)


def run(arguments: Namespace) -> int:
    if arguments.values and not arguments.check:
        raise UsageError(arguments.prog, "--values: given without --check, expected --check too")
    if arguments.text is not None and arguments.kv is None:
        raise UsageError(arguments.prog, "--text: given without --kv, expected --kv too")
    with _local_model(arguments) as shown:
        return _report(arguments, shown)


@contextmanager
def _local_model(arguments: Namespace) -> Iterator[str | None]:
    """Makes the model of a reference readable. Yields the reference if only the model's headers are downloaded."""
    from imp_service.cli.hub.reference import PREFIX

    word = arguments.model or ""
    if not word.startswith(PREFIX):
        yield None
        return
    from imp_service.cli.hub.get import find_cached

    cached = find_cached(word)
    if cached is not None:
        arguments.model = str(cached.path)
        yield None
        return
    from imp_service.cli.hub.remote import remote_headers

    asked = {"--check": arguments.check, "--kv": arguments.kv is not None, "--fingerprint": arguments.fingerprint}
    if whole := next((option for option, is_asked in asked.items() if is_asked), ""):
        raise UsageError(
            arguments.prog, f"{whole} needs the whole file; run first: imp pull {word.removeprefix(PREFIX)}"
        )
    with remote_headers(word) as model:
        arguments.model = str(model.path)
        yield word


def _report(arguments: Namespace, shown: str | None) -> int:
    """Writes the report. `shown` replaces the path in it."""
    from imp_service.core import open_file
    from imp_service.core.directory import metadata_of
    from imp_service.core.draft import open_draft
    from imp_service.core.inspect import inspect_model
    from imp_service.generation.defaults import sampling_warnings
    from imp_service.generation.text_report import describe_text
    from imp_service.generation.vector_report import describe_vectors

    config = load_model_settings(arguments)
    file = open_file(config)
    report = inspect_model(file, config)
    metadata = metadata_of(file)
    unfit = sampling_warnings(metadata, config.settings.model.overrides.default_sampling)
    _match_vocabularies(metadata, open_draft(config, file))
    text = describe_text(metadata, config.settings, report.vocab_size, report.n_tokens, has_head=report.has_head)
    text = replace(text, vectors=describe_vectors(report, metadata, config.settings))
    report = replace(report, warnings=(*report.warnings, *unfit, *text.warnings))
    if arguments.check:
        file.check(values=arguments.values)
        _check_text(metadata, config, report)
    caches = None if arguments.kv is None else measure_caches(arguments, config, file)
    fingerprint = fingerprint_of_file(config, file) if arguments.fingerprint else None
    checked = ("data and values" if arguments.values else "data") if arguments.check else ""
    if arguments.json:
        from imp_service.cli.inspect.report import report_object

        found = dict(report_object(file, report, text, checked, arguments.tensors))
        if caches is not None:
            found["caches"] = caches_object(caches)
        if fingerprint is not None:
            found["fingerprint"] = {"digest": fingerprint.digest, "parts": dict(fingerprint.parts)}
        sys.stdout.write(json.dumps(found if shown is None else {**found, "path": shown}, indent=2) + "\n")
    else:
        from imp_service.cli.inspect.report import write_brief_report, write_report

        if arguments.is_brief:
            write_brief_report(sys.stdout, file, report, text)
        else:
            write_report(sys.stdout, file, report, text, checked, with_tensors=arguments.tensors)
            if caches is not None:
                write_caches(sys.stdout, caches)
            if fingerprint is not None:
                write_fingerprint(sys.stdout, fingerprint)
    return 0


def _match_vocabularies(metadata: Mapping[str, object], draft: "ModelFile | None") -> None:
    """Raises if the draft model has another vocabulary."""
    from pathlib import Path

    from imp_service.core.directory import metadata_of, shown_name
    from imp_service.generation.draft_vocabulary import match_vocabularies

    if draft is not None:
        match_vocabularies(metadata, metadata_of(draft), shown_name(Path(draft.path)))


def _check_text(metadata: Mapping[str, object], config: "Config", report: "ModelReport") -> None:
    """Raises if the tokenizer or a chat template is broken. Without a chat template, prompts still work."""
    from imp_service.core.checkpoint import model_path
    from imp_service.core.directory import shown_name
    from imp_service.generation.text_side import TextSide
    from imp_service.text.errors import naming_file

    with naming_file(shown_name(model_path(config))):
        TextSide(metadata, config.settings, report.vocab_size).templates.compile_all()
