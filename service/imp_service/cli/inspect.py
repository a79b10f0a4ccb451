"""imp inspect: what a model file is, what it needs and whether it fits, before anything is loaded."""

import json
import sys
from argparse import ArgumentParser, Namespace
from dataclasses import replace
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, UsageError, add_settings_options
from imp_service.cli.model_options import MODEL_HELP, add_context_option, load_model_settings

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.core import ModelFile
    from imp_service.core.inspect import ModelReport


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", nargs="?", help=MODEL_HELP)
    parser.add_argument("-m", "--model", dest="model_option", metavar="MODEL", action=Once, help="the same")
    parser.add_argument("--check", action="store_true", help="read the whole file, its tokenizer and chat template too")
    parser.add_argument("--values", action="store_true", help="with --check: look for weights that are NaN or infinite")
    parser.add_argument("--tensors", action="store_true", help="list every tensor with the kernels that run on it")
    parser.add_argument("--json", action="store_true", help="as one JSON object")
    parser.set_defaults(usage=parser.format_usage)
    add_context_option(parser)
    add_settings_options(parser)


def run(arguments: Namespace) -> int:
    from imp_service.core import open_file
    from imp_service.core.inspect import inspect_model
    from imp_service.generation.defaults import sampling_warnings

    if arguments.values and not arguments.check:
        raise UsageError(arguments.usage(), "--values: given without --check, expected --check beside it")
    if arguments.model_option is not None:
        if arguments.model is not None:
            raise UsageError(arguments.usage(), "--model: given beside MODEL, expected one of them")
        arguments.model = arguments.model_option
    config = load_model_settings(arguments)
    file = open_file(config)
    report = inspect_model(file, config)
    unfit = sampling_warnings(file.metadata, config.settings.model.overrides.default_sampling)
    report = replace(report, warnings=(*report.warnings, *unfit))
    if arguments.check:
        file.check(values=arguments.values)
        _check_text(file, config, report)
    checked = ("data and values" if arguments.values else "data") if arguments.check else ""
    if arguments.json:
        from imp_service.cli.inspect_json import report_object

        sys.stdout.write(json.dumps(report_object(file, report, checked, arguments.tensors), indent=2) + "\n")
    else:
        from imp_service.cli.inspect_text import write_report

        write_report(sys.stdout, file, report, checked, with_tensors=arguments.tensors)
    return 0


def _check_text(file: "ModelFile", config: "Config", report: "ModelReport") -> None:
    """A file that loads but cannot be spoken to is no good either. No template is no fault: prompts work without."""
    from imp_service.generation.text_side import TextSide
    from imp_service.text import NoChatTemplate

    text = TextSide(file.metadata, config.settings, report.vocab_size, ())
    try:
        _ = text.template
    except NoChatTemplate:
        return
