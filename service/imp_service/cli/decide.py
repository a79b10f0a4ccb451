"""imp decide: the probability of each label as the answer to a question."""

from argparse import ArgumentParser, Namespace

from imp_service.cli.local_request import asked_model, continued, is_chat, question
from imp_service.cli.options.decision import add_decision_options, check_decision_options
from imp_service.cli.options.images import add_image_option
from imp_service.cli.options.settings import add_model_options, add_projector_option
from imp_service.cli.options.words import add_words, split_words

EXAMPLES = (
    'imp decide --label yes --label no "Is the sky blue?"',
    'imp decide model.gguf --range 1:5 "How polite is this, from 1 to 5? Give me that!"',
    'imp decide model.gguf --raw --label " blue" --label " green" "The sky is"',
)


def configure(parser: ArgumentParser) -> None:
    add_words(parser, "QUESTION", "the question, or with --raw the text that a label continues")
    add_decision_options(parser)
    add_model_options(parser)
    add_projector_option(parser)
    add_image_option(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object, with the exact probabilities")


def run(arguments: Namespace) -> int:
    words = split_words(arguments, is_model=False)
    with asked_model(arguments, words, check_decision_options) as (model, runtime, text, images):
        from imp_service.cli.decision_table import write_decision, write_json

        asked = question(text, arguments.system, images) if is_chat(runtime, arguments) else continued(text, images)
        decision = model.decide(asked, arguments.labels, range=arguments.numbers)
        if arguments.json:
            write_json(decision, model.name)
        else:
            write_decision(decision)
    return 0
