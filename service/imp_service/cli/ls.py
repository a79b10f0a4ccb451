"""imp ls: the models in the hub's cache."""

import sys
from argparse import ArgumentParser, Namespace

EXAMPLES = ("imp ls", "imp ls > models.txt")


def configure(parser: ArgumentParser) -> None:
    """It has no arguments."""


def run(arguments: Namespace) -> int:
    from imp_service.cli.hub.cache import cached_models
    from imp_service.cli.hub.reference import PREFIX
    from imp_service.cli.output import bytes_text, write_number_table

    rows = [(f"{PREFIX}{model.reference}", bytes_text(model.n_bytes)) for model in cached_models()]
    if rows:
        write_number_table(sys.stdout, ("model", "size"), rows)
    else:
        print("— no models; imp pull downloads one.", file=sys.stderr, flush=True)
    return 0
