"""The banner before an answer: version, model, device and threads."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service import __version__
from imp_service.api.shown import count_text
from imp_service.cli.failure import warning_line
from imp_service.cli.output import bytes_text
from imp_service.cli.terminal import print_note

if TYPE_CHECKING:
    from imp_service.config import Config
    from imp_service.core import ModelFile, TensorInfo
    from imp_service.generation import ModelRuntime


def banner(model: "ModelRuntime", file: "ModelFile") -> str:
    """One line: version, model, CPU, threads with the reason, and the GPU if the machine may have one."""
    name = "built-in demo" if is_built_in(model.config) else model.name
    return f"imp {__version__}  model: {name} ({describe_weights(file.tensors)})  {device_text(model)}"


def device_text(model: "ModelRuntime") -> str:
    """For example "CPU: AMD EPYC 9554 (avx512bf16), 2 threads (affinity: 2 CPUs)". Names a GPU if there may be one."""
    from imp_service.core.device import CPU, nvidia_driver, processor_name

    threads = threads_text(model.config)
    if model.config.settings.device.kind != CPU:
        return f"CPU: {processor_name()}, {threads}  GPU: {model.core.device_name}"
    cpu = f"CPU: {model.core.device_name}, {threads}"
    if nvidia_driver() is None:
        return cpu
    entry = next(entry for entry in model.config.entries() if entry.name == "device.kind")
    reason = "imp doctor says why" if entry.origin.source == "auto" else f"device.kind is {CPU}"
    return f"{cpu}  GPU: not used ({reason})"


def print_banner(model: "ModelRuntime", file: "ModelFile") -> None:
    """Prints the banner and the model's warnings to stderr."""
    print_note(banner(model, file))
    print_drafters(model)
    for warning in (*file.warnings, *model.warnings):
        print(warning_line(warning), file=sys.stderr)
    sys.stderr.flush()


def print_drafters(model: "ModelRuntime") -> None:
    """Says what guesses tokens ahead, if the settings ask for other drafters than the default."""
    for note in drafters_notes(model):
        print_note(note)


def drafters_notes(model: "ModelRuntime") -> list[str]:
    """The line of print_drafters(), if there is one."""
    from imp_service.config.settings import SpeculationSettings

    is_other = model.config.settings.speculation.drafters != SpeculationSettings().drafters
    return [f"guesses ahead: {model.drafters_text}"] if model.drafters_text and is_other else []


def is_built_in(config: "Config") -> bool:
    return config.settings.model.path is None


def describe_weights(tensors: "Sequence[TensorInfo]") -> str:
    """For example "3.7M parameters, Q8_0, 4.0 MB"; of mixed types, names the one with the most elements."""
    n_elements = sum(tensor.n_elements for tensor in tensors)
    by_type: dict[str, int] = {}
    for tensor in tensors:
        by_type[tensor.dtype] = by_type.get(tensor.dtype, 0) + tensor.n_elements
    most = max(by_type, key=lambda dtype: by_type[dtype], default="no weights")
    # Norms and biases are floats in every file: a few other elements do not make a file mixed.
    is_mixed = by_type.get(most, 0) < 0.95 * n_elements
    n_bytes = sum(tensor.n_bytes for tensor in tensors)
    return f"{count_text(n_elements)} parameters, {'mostly ' if is_mixed else ''}{most.upper()}, {bytes_text(n_bytes)}"


def threads_text(config: "Config") -> str:
    """For example "2 threads (cpu.max 2.5)": the number, and the reason for it."""
    entry = next(entry for entry in config.entries() if entry.name == "device.threads")
    reason = entry.origin.place.partition(" -> ")[0] if entry.origin.source == "auto" else str(entry.origin)
    count = config.settings.device.threads
    return f"{count} thread{'s' if count != 1 else ''} ({reason})"
