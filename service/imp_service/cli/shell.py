"""The entry point of `imp`: parses the command line, runs the command, and prints an error as one line."""

import os
import sys
from collections.abc import Sequence

from imp_service.cli.arguments import UsageError
from imp_service.cli.command_line import parse
from imp_service.cli.failure import INTERRUPTED, describe, report
from imp_service.cli.preflight import limit_openblas, require_address_space


def _open_closed_streams() -> None:
    """Opens /dev/null for each standard stream that was closed before the start, which Python sets to None."""
    for name, flags in (("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY)):
        if getattr(sys, name) is None:
            mode = "r" if flags == os.O_RDONLY else "w"
            setattr(sys, name, os.fdopen(os.open(os.devnull, flags), mode, encoding="utf-8"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs `imp` with these arguments, those of the process by default; returns the exit status."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    _open_closed_streams()
    limit_openblas()
    try:
        command, parsed = parse(words)
        if command.address_space_bytes:
            require_address_space(command.address_space_bytes)
        status = command.module().run(parsed)
        sys.stdout.flush()
    except UsageError as error:
        status = report(error.reason, error.message)
        print(f"{error.prog} --help lists what it takes", file=sys.stderr, flush=True)
        return status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # The reader closed the pipe: no error. Python flushes stdout again when it exits: to /dev/null.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if sys.flags.dev_mode:  # python -X dev -m imp_service shows the traceback
            raise
        return report(*describe(error), getattr(error, "code", None))
    return status
