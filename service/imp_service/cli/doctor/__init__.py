"""imp doctor: checks everything that imp needs of this machine, changes nothing, and reports whether imp can run."""

import sys
from argparse import ArgumentParser, Namespace

from imp_service.cli.options.settings import add_settings_options

RUNNABLE, BLOCKED = 0, 1
# Version of the JSON: raised when a field changes its meaning. Check ids never change.
REPORT_VERSION = 1

_MARKS = {"ok": "ok", "warning": "warn", "blocked": "BLOCKED"}
EXAMPLES = (
    "imp doctor",
    "imp doctor --json --set device.threads=4",
)


def configure(parser: ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON object, for programs")
    add_settings_options(parser)


def run(arguments: Namespace) -> int:
    from imp_service.cli.doctor.checks import run_checks

    checks = run_checks(arguments)
    runnable = all(check.status != "blocked" for check in checks)
    if arguments.json:
        import json

        from imp_service import __version__

        rows = [{"id": check.id, "status": check.status, "message": check.message} for check in checks]
        document = {"version": REPORT_VERSION, "imp": __version__, "runnable": runnable, "checks": rows}
        sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    else:
        from imp_service.cli.output import write_table

        write_table(sys.stdout, (), [(_MARKS[check.status], check.id, check.message) for check in checks])
        n_warnings = sum(check.status == "warning" for check in checks)
        verdict = "imp can run" if runnable else "imp cannot run: see what is BLOCKED"
        warnings = f", with {n_warnings} warning{'s' if n_warnings != 1 else ''}" if runnable and n_warnings else ""
        sys.stdout.write(f"\n{verdict}{warnings}.\n")
    return RUNNABLE if runnable else BLOCKED
