"""imp certify: measures what sparse prefill with a draft model gains and loses, and says whether the pair passes."""

import json
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.arguments import Once, positive_integer, positive_integers, whole_number
from imp_service.cli.options.settings import add_draft_option, add_model_options, load_model_settings

if TYPE_CHECKING:
    from imp_service.cli.certify.questions import Question
    from imp_service.cli.certify.record import HashedModel
    from imp_service.cli.certify.trial import PairTrial
    from imp_service.config import Config
    from imp_service.core import ModelFile

CERTIFIED, NOT_CERTIFIED = 0, 1
DEFAULT_QUESTIONS = 80
DEFAULT_TOKENS = (8192,)
DEFAULT_CONCURRENCY = (1, 2, 4, 8)
DEFAULT_REPS = 3
DEFAULT_ANSWER = 24
EXAMPLES = (
    "imp certify model.gguf --draft draft.gguf -o certificate.json",
    "imp certify model.gguf --draft draft.gguf --questions mine.jsonl --set sparse_prefill.keep=0.4",
)


def configure(parser: ArgumentParser) -> None:
    add_model_options(parser, as_word=True)
    add_draft_option(parser, "score prompts with")
    for option, text in (
        ("--needles", "questions about a number hidden in a text"),
        ("--facts", "questions about one of many alike facts"),
    ):
        parser.add_argument(
            option, metavar="N", type=whole_number, action=Once, help=f"{text} (default: {DEFAULT_QUESTIONS})"
        )
    parser.add_argument(
        "--questions",
        metavar="FILE",
        type=Path,
        action=Once,
        help='also ask these: JSON lines with "prompt", a text, and "answers", of which an answer must have one',
    )
    for option, lengths, text in (
        ("--tokens", DEFAULT_TOKENS, "lengths of the prompts"),
        ("--concurrency", DEFAULT_CONCURRENCY, "prompts at once, for the time to the first token"),
    ):
        shown = ",".join(map(str, lengths))
        parser.add_argument(
            option, metavar="N,…", type=positive_integers, action=Once, help=f"{text} (default: {shown})"
        )
    for option, default, text in (
        ("--answer-tokens", DEFAULT_ANSWER, "most tokens of an answer"),
        ("--reps", DEFAULT_REPS, "measurements of each time"),
    ):
        parser.add_argument(
            option, metavar="N", type=positive_integer, action=Once, help=f"{text} (default: {default})"
        )
    parser.add_argument("-o", "--output", metavar="FILE", action=Once, help="write the record to FILE, as JSON")
    parser.add_argument("--json", action="store_true", help="print the record as JSON")


def run(arguments: Namespace) -> int:
    from imp_service.cli.atomic_file import write_atomically
    from imp_service.cli.certify.record import HashedModel, Record
    from imp_service.cli.certify.trial import PairTrial
    from imp_service.cli.progress import Progress, load_model
    from imp_service.config.sources import of_option
    from imp_service.generation import LanguageModel

    config = load_model_settings(arguments, [of_option("imp certify", "sparse_prefill.enabled", "true")])
    runtime, file = load_model(config)
    progress = Progress()
    with LanguageModel(runtime) as model:
        trial = PairTrial(
            model,
            is_chat=not runtime.text.templates.is_empty,
            answer_tokens=arguments.answer_tokens or DEFAULT_ANSWER,
            report=progress.show,
        )
        try:
            questions = _questions(arguments, trial)
            answers = trial.ask(questions)
            longest = max(answers, key=lambda each: each.prompt_tokens).question
            times = [
                trial.times(longest, each, arguments.reps or DEFAULT_REPS)
                for each in arguments.concurrency or DEFAULT_CONCURRENCY
            ]
        finally:
            progress.clear()
    models = (HashedModel(runtime.name, _sha256(file)), _draft_of(config, file))
    record = Record(*models, config.settings.sparse_prefill, answers, times)
    text = json.dumps(record.as_json(), indent=1) + "\n"
    if arguments.output is not None:
        write_atomically(Path(arguments.output), text)
    if arguments.json:
        sys.stdout.write(text)
    else:
        record.write(sys.stdout)
    return NOT_CERTIFIED if record.faults else CERTIFIED


def _questions(arguments: Namespace, trial: "PairTrial") -> "list[Question]":
    """Those of each kind, for each length of prompts as many."""
    from imp_service.cli.certify.questions import facts, needles, read_questions
    from imp_service.cli.failure import CommandError

    lengths: tuple[int, ...] = arguments.tokens or DEFAULT_TOKENS
    questions: list[Question] = []
    for make, asked in ((needles, arguments.needles), (facts, arguments.facts)):
        number = DEFAULT_QUESTIONS if asked is None else asked
        for i, length in enumerate(lengths):
            own = number // len(lengths) + (i < number % len(lengths))
            questions += make(own, length, trial.count_tokens)
    questions += [] if arguments.questions is None else read_questions(arguments.questions)
    if not questions:
        raise CommandError("USAGE", "--questions: no question, expected one of --needles, --facts and --questions")
    return questions


def _sha256(file: "ModelFile") -> str:
    from imp_service.core.weights import sha256_of

    return sha256_of(file.files) or ""


def _draft_of(config: "Config", file: "ModelFile") -> "HashedModel":
    from imp_service.cli.certify.record import HashedModel
    from imp_service.core.directory import shown_name
    from imp_service.core.draft import open_draft

    draft = open_draft(config, file)
    assert draft is not None  # each question was asked with it
    return HashedModel(shown_name(Path(draft.path)), _sha256(draft))
