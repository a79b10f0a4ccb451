"""The result of one check of imp doctor."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

from imp_service.cli.failure import describe

# A check is printed on one line and lists at most this many errors.
MAX_ERRORS = 10

Status = Literal["ok", "warning", "blocked"]


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check; its id is stable, for programs."""

    id: str
    status: Status
    message: str


def run_check(name: str, check: Callable[[], Check]) -> Check:
    """Runs `check`; an exception becomes a result that blocks imp."""
    try:
        return check()
    except Exception as error:
        return blocked_by(name, [error])


def blocked_by(name: str, errors: Iterable[Exception]) -> Check:
    """The result of a check that found these errors; equal ones are listed once."""
    lines = [f"{reason}: {message}" for reason, message in dict.fromkeys(describe(error) for error in errors)]
    rest = [f"and {len(lines) - MAX_ERRORS} more: imp config check lists them"] if len(lines) > MAX_ERRORS else []
    return Check(name, "blocked", "; ".join([*lines[:MAX_ERRORS], *rest]))
