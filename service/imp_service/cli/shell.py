"""The shell around the commands: finds the one that was typed, runs it, and turns whatever it raises into one line."""

import os
import sys
from collections.abc import Sequence

from imp_service.cli.arguments import UsageError
from imp_service.cli.command_line import parse
from imp_service.cli.failure import INTERRUPTED, describe, report
from imp_service.cli.preflight import require_room, rest_openblas


def _open_closed_streams() -> None:
    """A stream that was closed before the start is None: from and to nowhere instead."""
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            mode = "r" if flags == os.O_RDONLY else "w"
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `imp` with these arguments, those of the process by default; returns the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    _open_closed_streams()
    rest_openblas()
    try:
        command, parsed = parse(words)
        if command.room_bytes:
            require_room(command.room_bytes)
        status = command.module().run(parsed)
        sys.stdout.flush()
    except UsageError as error:
        sys.stderr.write(error.usage)
        return report(error.reason, error.message)
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader of a pipe has what it wanted. The interpreter flushes stdout once more at its end: to nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if sys.flags.dev_mode:  # python -X dev -m imp_service: whoever looks for our bug wants all of it
            raise
        return report(*describe(error), getattr(error, "code", None))
    return status
