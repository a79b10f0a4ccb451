"""imp systemd: a systemd unit on stdout, with the memory and the times of a model and its settings."""

import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from imp_service.cli.failure import CommandError, warning_line
from imp_service.cli.options.settings import add_model_options, load_model_settings

if TYPE_CHECKING:
    from imp_service.config import Config

EXAMPLES = (
    "imp systemd > imp.service",
    "imp systemd -m model.gguf --set drain.grace=2m > imp.service",
)


def configure(parser: ArgumentParser) -> None:
    add_model_options(parser, as_word=True)


def run(arguments: Namespace) -> int:
    import imp_service
    from imp_service.config import AUTO
    from imp_service.core import open_file
    from imp_service.core.device import CPU, resolve_device
    from imp_service.core.inspect import inspect_model
    from imp_service.deploy import UnitFilling, fill_unit, read_unit

    config = resolve_device(load_model_settings(arguments))
    report = inspect_model(open_file(config), config)
    memory = report.memory
    if not memory.fits:
        raise CommandError("FIELD_INVALID", memory.refusal)
    words = [*_program(), "serve", *_options(arguments, config)]
    if config.settings.kv.bytes is AUTO:  # it would follow from the limit of the unit, which follows from it
        words += ["--set", f"kv.bytes={memory.items['kv']}"]
    files = list(_files(config))
    filling = UnitFilling(
        words,
        memory.total_bytes,
        config.settings.drain,
        is_gpu=str(config.settings.device.kind) != CPU,
        read_paths=[
            *(Path(prefix) for prefix in (sys.prefix, sys.base_prefix, *imp_service.__path__)),
            *(Path(path) for _, path in files),
        ],
    )
    sys.stdout.write(fill_unit(read_unit(), filling))
    relative = [f"{name} = {path}" for name, path in files if not path.startswith("/")]
    for warning in (*report.warnings, *(f"{text}: a relative path, but the service starts in /" for text in relative)):
        print(warning_line(warning), file=sys.stderr)
    return 0


def _program() -> list[str]:
    """The command of this installation."""
    script = Path(sys.prefix, "bin", "imp")
    return [str(script)] if script.exists() else [sys.executable, "-m", "imp_service"]


def _options(arguments: Namespace, config: "Config") -> Iterator[str]:
    """The options that this command was called with."""
    if config.file is not None:
        yield from ("--config", str(config.file.absolute()))
    if arguments.model is not None:
        path = Path(arguments.model)
        yield from ("-m", str(path.absolute()) if path.exists() else arguments.model)
    if arguments.context is not None:
        yield from ("-c", arguments.context)
    for assignment in arguments.assignments:
        yield from ("--set", assignment)


def _files(config: "Config") -> Iterator[tuple[str, str]]:
    """The settings that name files which exist, and imp.conf; -m is a setting here."""
    if config.file is not None:
        yield "--config", str(config.file.absolute())
    for entry in config.entries():
        is_model = entry.origin.source == "--model"
        if isinstance(entry.value, str) and "://" not in entry.value and Path(entry.value).is_file():
            yield entry.name, str(Path(entry.value).absolute()) if is_model else entry.value
