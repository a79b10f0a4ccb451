"""imp decide: the probability of each label as the answer to a question."""

from argparse import ArgumentParser, Namespace

from imp_service.cli.arguments import Once
from imp_service.cli.failure import CommandError
from imp_service.cli.local_request import check_images, continued, is_chat, question
from imp_service.cli.options.decision import add_decision_options, check_decision_options
from imp_service.cli.options.images import add_image_option, read_images
from imp_service.cli.options.settings import add_model_options, add_projector_option, load_model_settings
from imp_service.cli.options.words import add_words, load_named_model, read_words, split_words

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
    parser.add_argument("--raw", action="store_true", help="continue the text, without the model's chat template")
    parser.add_argument("--system", metavar="TEXT", action=Once, help="the system message, before the question")
    parser.add_argument("--json", action="store_true", help="print one JSON object, with the exact probabilities")


def run(arguments: Namespace) -> int:
    words = split_words(arguments, is_model=False)
    if arguments.raw and arguments.system is not None:
        raise CommandError("USAGE", "--system: given together with --raw, expected one of them")
    config = load_model_settings(arguments)
    check_decision_options(arguments)
    images = read_images(arguments.images, words, config.settings.media.request_bytes)
    prompt = read_words(words, config, arguments)
    runtime, file = load_named_model(config, arguments, words)
    from imp_service.cli.banner import print_banner
    from imp_service.cli.decision_table import write_decision, write_json
    from imp_service.generation import LanguageModel

    with LanguageModel(runtime) as model:
        print_banner(runtime, file)
        check_images(runtime, zip(arguments.images, images, strict=True))
        asked = question(prompt, arguments.system, images) if is_chat(runtime, arguments) else continued(prompt, images)
        decision = model.decide(asked, arguments.labels, range=arguments.numbers)
        if arguments.json:
            write_json(decision, model.name)
        else:
            write_decision(decision)
    return 0
