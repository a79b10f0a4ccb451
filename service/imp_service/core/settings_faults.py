"""Every reason why a start with these settings would fail, found without reading a weight."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterable, Iterator
from pathlib import Path

from imp_service.config import Config, ConfigError
from imp_service.config.select import select_entry
from imp_service.config.toml import KeyPath, write_path
from imp_service.config.tree import origin_at, value_at
from imp_service.core.checkpoint import open_checkpoint
from imp_service.core.device import CUDA, find_gpu, resolve_device, resolve_machine
from imp_service.core.errors import DeviceError, Error
from imp_service.core.inspect import plan_faults
from imp_service.core.kernels import list_kernels, weight_types
from imp_service.core.overrides import known_kernels, not_of, other_device
from imp_service.core.tuning_file import tuning_here


def file_faults(config: Config, path: KeyPath) -> Iterator[ConfigError]:
    """Why the file that the key at `path` names does not open. Nothing if it opens, or the key is unset."""
    value: object = config.settings
    for name in path:
        value = getattr(value, name)
    if value is None:
        return
    file = Path(str(value))
    try:
        mode = file.stat().st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            with file.open("rb") as content:
                content.read(1)
        elif not os.access(file, os.R_OK):  # a pipe can be read only once, by the start
            raise PermissionError
    except PermissionError:
        yield ConfigError(typed_at(config, path), f"{value}: may not be read", reason="CONFIG_PERMISSION")
    except OSError as error:
        yield ConfigError(typed_at(config, path), f"{value}: {error.strerror}")


def typed_at(config: Config, path: KeyPath) -> str:
    """The source and the key of the value at `path`. A value of [model] may come from an entry of [models]."""
    value = value_at(config.tree, path)
    if path[0] == "model" and value is not None:
        of_entries = [("models", name, *path[1:]) for name in config.settings.models]
        path = next((typed for typed in of_entries if value_at(config.tree, typed) is value), path)
    return origin_at(config.tree, path).where(path)


Fault = Error | ConfigError
CHAT_TEMPLATE: KeyPath = ("model", "overrides", "chat_template")


def setting_faults(config: Config) -> Iterator[Fault]:
    """Faults of the tuning, the device and the models. `device.threads` must be decided.

    Checks that files open, that the device exists, that each model's header is valid, that the model fits into memory,
    and that its weights have kernels.
    """
    yield from _raised(lambda: tuning_here(config.settings))
    device: list[Fault] = list(gpu_faults(config))
    try:
        decided, _ = resolve_machine(config)
    except (Error, ConfigError) as error:
        device.append(error)
    yield from device
    if device:
        decided = resolve_device(config)
    yield from _model_faults(decided, has_device=not device)
    yield from entry_faults(decided, has_device=not device)


def opening_faults(config: Config) -> Iterator[Fault]:
    """Only the faults of files that do not open, for incomplete settings."""
    yield from _raised(lambda: tuning_here(config.settings))
    for name in (None, *config.settings.models):
        chosen = config if name is None else select_entry(config, name)
        yield from file_faults(chosen, CHAT_TEMPLATE)
        yield from _of_entry(name, _raised(lambda chosen=chosen: open_checkpoint(chosen)))  # type: ignore[misc]


def entry_faults(config: Config, *, has_device: bool) -> Iterator[Fault]:
    """Faults of the entries of [models]. If there is the device, `config` must have every `auto` decided."""
    for name in config.settings.models:
        yield from _model_faults(select_entry(config, name), has_device=has_device, name=name)


def gpu_faults(config: Config) -> Iterator[Fault]:
    """Why the GPU that the settings name cannot be used."""
    if config.settings.device.kind != CUDA or not (refusal := find_gpu().refusal):
        return
    try:
        list_kernels(CUDA)  # a better message if imp was built without CUDA
    except DeviceError as error:
        yield error
    else:
        found = f"found {CUDA}, and {refusal}"
        yield ConfigError(typed_at(config, ("device", "kind")), found, reason="DEVICE_MISSING")


def _model_faults(config: Config, *, has_device: bool, name: str | None = None) -> Iterator[Fault]:
    """Faults of [model], which may come from an entry of [models]."""
    yield from file_faults(config, CHAT_TEMPLATE)
    try:
        file = open_checkpoint(config)
    except Error as error:
        yield from _of_entry(name, [error])
        file = None
    if file is not None and has_device:
        yield from _of_entry(name, plan_faults(file, config))
    else:
        yield from _override_faults(config, None if file is None else {tensor.name for tensor in file.tensors})


def _of_entry(name: str | None, faults: Iterable[Fault]) -> Iterator[Fault]:
    """The faults, with the entry of [models] put before their messages."""
    for fault in faults:
        if name is not None:
            fault.message = f"{write_path(('models', name))}: {fault.message}"
        yield fault


def _override_faults(config: Config, tensors: Collection[str] | None) -> Iterator[Fault]:
    """Faults in overrides of kernels, found without a device or a file."""
    types = weight_types()
    device = str(config.settings.device.kind)
    kernels = known_kernels(device)
    for pattern, kernel in config.settings.model.overrides.gemm.items():
        where = typed_at(config, ("model", "overrides", "gemm", pattern))
        is_one_name = not any(character in pattern for character in "*?")
        could_be_there = "." in pattern if tensors is None else pattern in tensors
        if is_one_name and pattern not in types and not could_be_there:
            what = f"names no tensor, and is none of the weight types: {', '.join(types)}"
            yield ConfigError(where, what, reason="OVERRIDE_INVALID")
        elif other := other_device(kernel, device):
            yield ConfigError(where, f"{kernel} {not_of(other, device)}", reason="OVERRIDE_INVALID")
        elif kernels and kernel not in kernels:
            yield ConfigError(where, f"{kernel}: no such kernel of {device}", reason="OVERRIDE_INVALID")


def _raised(look: Callable[[], object]) -> Iterator[Fault]:
    try:
        look()
    except (Error, ConfigError) as error:
        yield error
