"""What would end a start with these settings, as far as it can be told at once: no weight is read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from imp_service.config import Config, ConfigError
from imp_service.config.select import select_entry
from imp_service.config.toml import KeyPath
from imp_service.config.tree import origin_at
from imp_service.core.device import CUDA, find_gpu, resolve_device, resolve_machine
from imp_service.core.errors import DeviceError, Error
from imp_service.core.inspect import plan_faults
from imp_service.core.kernels import list_kernels, weight_types
from imp_service.core.load import open_checkpoint
from imp_service.core.overrides import known_kernels, require_kernels
from imp_service.core.tuning import tuning_here

Fault = Error | ConfigError
_TEXT_FILES: tuple[KeyPath, ...] = (("tls", "cert"), ("tls", "key"), ("tls", "client_ca"), ("auth", "token_file"))
_TEMPLATE: KeyPath = ("model", "overrides", "chat_template")


def setting_faults(config: Config) -> Iterator[Fault]:
    """Every one. `device.threads` is decided.

    The files that keys name open, the device is there, each model's header is good, and it would fit and have kernels.
    """
    for path in _TEXT_FILES:
        yield from _file_fault(config, path)
    yield from _raised(lambda: tuning_here(config.settings))
    device = [*_gpu_fault(config), *_raised(lambda: resolve_machine(config))]
    yield from device
    decided = resolve_device(config) if device else resolve_machine(config)[0]
    yield from _model_faults(decided, has_device=not device)
    for name in decided.settings.models:
        yield from _model_faults(select_entry(decided, name), has_device=not device)


def _gpu_fault(config: Config) -> Iterator[Fault]:
    if config.settings.device.kind != CUDA or not (refusal := find_gpu().refusal):
        return
    try:
        list_kernels(CUDA)  # says more where imp was built without them
    except DeviceError as error:
        yield error
    else:
        found = f"found {CUDA}, and {refusal}"
        yield ConfigError(_where(config, ("device", "kind")), found, reason="DEVICE_MISSING")


def _model_faults(config: Config, *, has_device: bool) -> Iterator[Fault]:
    """Of [model]."""
    yield from _file_fault(config, _TEMPLATE)
    try:
        file = open_checkpoint(config)
    except Error as error:
        yield error
        file = None
    if file is not None and has_device:
        yield from plan_faults(file, config)
    else:
        yield from _override_faults(config, None if file is None else {tensor.name for tensor in file.tensors})


def _override_faults(config: Config, tensors: Collection[str] | None) -> Iterator[Fault]:
    """What overrides of kernels say, where there is no device, or no file, to plan them for."""
    types = weight_types()
    device = str(config.settings.device.kind)
    kernels = known_kernels(device)
    for pattern, kernel in config.settings.model.overrides.gemm.items():
        where = _where(config, ("model", "overrides", "gemm", pattern))
        is_one_name = not any(character in pattern for character in "*?")
        could_be_there = "." in pattern if tensors is None else pattern in tensors
        if is_one_name and pattern not in types and not could_be_there:
            what = f"names no tensor, and is none of the weight types: {', '.join(types)}"
            yield ConfigError(where, what, reason="OVERRIDE_INVALID")
        elif foreign := [*_raised(lambda only={pattern: kernel}: require_kernels(only, device))]:  # type: ignore[misc]
            yield from foreign
        elif kernels and kernel not in kernels:
            yield ConfigError(where, f"{kernel}: no such kernel of {device}", reason="OVERRIDE_INVALID")


def _raised(look: Callable[[], object]) -> Iterator[Fault]:
    try:
        look()
    except (Error, ConfigError) as error:
        yield error


def _file_fault(config: Config, path: KeyPath) -> Iterator[Fault]:
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
        elif not os.access(file, os.R_OK):  # what a pipe holds can be read once: the start does
            raise PermissionError
    except PermissionError:
        yield ConfigError(_where(config, path), f"{value}: may not be read", reason="CONFIG_PERMISSION")
    except OSError as error:
        yield ConfigError(_where(config, path), f"{value}: {error.strerror}")


def _where(config: Config, path: KeyPath) -> str:
    return origin_at(config.tree, path).where(path)
