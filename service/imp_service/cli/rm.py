"""imp rm: deletes a model from the hub's cache."""

import sys
from argparse import ArgumentParser, Namespace

EXAMPLES = ("imp rm Qwen/Qwen3-0.6B-GGUF:Q8_0", "imp rm Qwen/Qwen3-0.6B")


def configure(parser: ArgumentParser) -> None:
    parser.add_argument(
        "reference", metavar="OWNER/NAME", help="as imp ls lists it, or NAME; OWNER/NAME: all of its models"
    )


def run(arguments: Namespace) -> int:
    from imp_service.cli.hub.cache import remove
    from imp_service.cli.output import bytes_text

    print(f"— {bytes_text(remove(arguments.reference))} freed.", file=sys.stderr, flush=True)
    return 0
