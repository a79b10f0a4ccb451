"""--image: the images of a command line, read from the files that it names."""

import os
import stat
import sys
from argparse import ArgumentParser
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from imp_service.cli.failure import CommandError
from imp_service.cli.options.words import STDIN
from imp_service.cli.output import memory_text
from imp_service.cli.terminal import print_note

# A small model that reads images, with its projector.
_EXAMPLE = "ggml-org/SmolVLM2-500M-Video-Instruct-GGUF:Q8_0"


def add_image_option(parser: ArgumentParser) -> None:
    parser.add_argument(
        "--image",
        metavar="FILE",
        dest="images",
        action="append",
        default=[],
        help="an image before the text, PNG, JPEG, WebP or GIF; repeatable; - reads it from stdin",
    )


def read_images(names: Sequence[str], words: Sequence[str], most_bytes: int) -> list[bytes]:
    """The files that --image names. `words` are those of the text. Raises CommandError."""
    if STDIN in names and (names.count(STDIN) > 1 or not words or STDIN in words):
        raise CommandError("USAGE", "--image -: stdin is one image, expected the text and other images as arguments")
    return [
        _read(sys.stdin.buffer, name, most_bytes) if name == STDIN else read_image(name, most_bytes) for name in names
    ]


def read_image(name: str, most_bytes: int) -> bytes:
    """The bytes of a regular file. Raises CommandError."""
    try:
        # The open of a FIFO would wait for a writer.
        opened = os.open(Path(name).expanduser(), os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        what = error.strerror if isinstance(error, OSError) else "no path"
        raise CommandError("IMAGE_UNREADABLE", f"{name}: {what}") from None
    if not stat.S_ISREG(os.fstat(opened).st_mode):
        os.close(opened)
        raise CommandError("IMAGE_UNREADABLE", f"{name}: not a regular file, expected one, or - for stdin")
    with os.fdopen(opened, "rb") as file:
        return _read(file, name, most_bytes)


def _read(file: BinaryIO, name: str, most_bytes: int) -> bytes:
    content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        most = f"more than {memory_text(most_bytes)}, which a request may have (media.request_bytes)"
        raise CommandError("IMAGE_INVALID", f"{shown_name(name)}: {most}")
    return content


def shown_name(name: str) -> str:
    """The name of an image in errors."""
    return "stdin" if name == STDIN else name


def tell_of_chat(command: str) -> None:
    """Says that only the chat template writes what the model expects around an image. `command` uses it."""
    print_note(f"— in a chat this model has marks around an image, and a text has nothing around them: use {command}")


def reads_no_images(model: str) -> CommandError:
    """The error for images that are sent to a model without a tower."""
    way_on = f"model.projector names the projector of a model that does, and imp pull {_EXAMPLE} downloads both"
    return CommandError("NOT_SUPPORTED_BY_MODEL", f"{model} reads no images; {way_on}")
