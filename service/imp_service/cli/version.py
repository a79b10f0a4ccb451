"""imp --version: the version, and what is installed."""

from argparse import Action, ArgumentParser, Namespace
from collections.abc import Sequence
from typing import Any

# The distributions that pack imp_service: without CUDA code, and with it.
DISTRIBUTIONS = ("imp-service", "imp-service-cuda13")


class PrintVersion(Action):
    """Prints the version and ends the process."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        print(version_text())
        parser.exit()


def version_text() -> str:
    """The first line is `imp` and the version; each line below it is a name and a value."""
    from imp_service import __version__
    from imp_service.api.revision import API_REVISION

    names = ", ".join(installed_distributions()) or "none, not installed by pip"
    return "\n".join(
        [f"imp {__version__}", f"distribution: {names}", *_build(), f"API: imp.v1, revision {API_REVISION}"]
    )


def installed_distributions() -> list[str]:
    """Returns which of DISTRIBUTIONS pip has installed; none if the package is a source tree on PYTHONPATH."""
    from importlib.metadata import PackageNotFoundError, distribution

    found = []
    for name in DISTRIBUTIONS:
        try:
            distribution(name)
        except PackageNotFoundError:
            continue
        found.append(name)
    return found


def _build() -> list[str]:
    try:
        from imp_service.core.installation import backends, revision
    except ImportError as error:
        return [f"backends: none, the C++ part does not load: {error}"]
    built_from = revision() or "unknown, not built from a checkout"
    return [f"revision: {built_from}", f"backends: {', '.join(backends())}"]
