"""Runs every check of imp doctor in order, and checks the settings."""

import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.doctor.check import Check, blocked_by, run_check
from imp_service.cli.doctor.machine import (
    check_cpu,
    check_extension,
    check_gpu,
    check_huge_pages,
    check_memory,
    check_package,
    check_placement,
    check_python,
    check_threads,
    check_tuning,
)
from imp_service.cli.doctor.model import check_models, check_text

if TYPE_CHECKING:
    from imp_service.config import Config


def run_checks(arguments: Namespace, root: Path = Path("/")) -> list[Check]:
    """Runs every check, even if others fail. `root` stands in for the root of the file system."""
    config_check, config = check_config(arguments)
    return [
        check_python(sys.version_info[:3]),
        run_check("package", check_package),
        run_check("extension", check_extension),
        config_check,
        run_check("cpu", lambda: check_cpu(config)),
        run_check("threads", lambda: check_threads(config, root)),
        *check_placement(config, root),
        run_check("memory", lambda: check_memory(root)),
        check_huge_pages(config, root),
        run_check("tuning", lambda: check_tuning(config, root)),
        run_check("model", lambda: check_models(config)),
        run_check("text", lambda: check_text(config)),
        run_check("gpu", lambda: check_gpu(config, root)),
    ]


def check_config(arguments: Namespace) -> "tuple[Check, Config | None]":
    from imp_service.config.read_settings import read_with_errors
    from imp_service.config.sources import misspelled_variables

    try:
        reading = read_with_errors(arguments.config, arguments.assignments)
        config = reading.config
        faults = reading.errors if config is None or reading.errors else _file_faults(config)
    except Exception as error:
        return blocked_by("config", [error]), None
    if config is None or reading.errors:
        return blocked_by("config", faults), None
    if faults:
        return blocked_by("config", faults), config
    if unread := misspelled_variables():
        return Check("config", "warning", "; ".join(unread)), config
    n_set = sum(entry.origin.source != "default" for entry in config.entries())
    file = f"{config.file}" if config.file else "no imp.conf, which is fine"
    return Check("config", "ok", f"{file}; {n_set} key{'s' if n_set != 1 else ''} set"), config


def _file_faults(config: "Config") -> "Sequence[Exception]":
    """Returns the problems of files that no other check opens."""
    from imp_service.core.settings_faults import CHAT_TEMPLATE, file_faults
    from imp_service.serving.security.secret_faults import secret_faults

    return [*secret_faults(config), *file_faults(config, CHAT_TEMPLATE)]
