"""imp pull: downloads a model from a hub, checks it, and shows what it is."""

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from imp_service.cli.arguments import Once

EXAMPLES = (
    "imp pull Qwen/Qwen3-0.6B-GGUF:Q8_0",
    "imp pull Qwen/Qwen3-0.6B-GGUF --list",
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "reference",
        metavar="OWNER/NAME",
        help="a repository of Hugging Face or its address, optionally with :FILE or :TYPE (default: Q4_K_M of several)",
    )
    parser.add_argument(
        "--to", metavar="DIR", action=Once, help="the directory for the files (default: the cache of Hugging Face)"
    )
    parser.add_argument("--revision", metavar="R", action=Once, help="a branch, a tag or a commit (default: main)")
    parser.add_argument("--no-vision", action="store_true", help="leave out the projector, which reads images")
    parser.add_argument("--list", action="store_true", help="list the models of the repository, and download nothing")


def run(arguments: Namespace) -> int:
    from imp_service.cli.command_line import parse
    from imp_service.cli.hub.get import get_model, list_models
    from imp_service.cli.hub.reference import PREFIX, read_reference

    if arguments.list:
        list_models(arguments.reference, arguments.revision)
        return 0
    folder = None if arguments.to is None else Path(arguments.to)
    path = get_model(arguments.reference, arguments.revision, folder, with_vision=not arguments.no_vision)
    is_found_by_name = arguments.to is None and arguments.revision is None
    model = f"{PREFIX}{read_reference(arguments.reference)}" if is_found_by_name else str(path)
    inspect, words = parse(["inspect", str(path)])
    words.is_brief = True
    status = inspect.module().run(words)
    sys.stdout.flush()  # what to type next comes last
    others = "imp chat, imp serve and imp inspect take the same name"
    print(f'— Next: imp run {model} "…"; {others}.', file=sys.stderr, flush=True)
    return status
