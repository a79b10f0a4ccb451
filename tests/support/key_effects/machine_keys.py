"""Keys of [device] whose effect depends on the machine, which the test describes as data."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from unittest import mock

from imp_service import _core
from imp_service.config import placement, read_settings
from imp_service.config.cpus import Cpu
from imp_service.core.tuning_file import Tuning, key_here, write_tuning
from support.key_effects.core_keys import SMALL, load_argument
from support.key_effects.effect import FOLDER, Effect

TUNED = [("q8_0", "reference", 4)]


def interleaved(folder: Path, settings: tuple[str, ...]) -> Any:
    """Returns the nodes over which memory is interleaved on a machine with two."""
    cpus = (Cpu(0, core=0, node=0), Cpu(1, core=1, node=1))
    with (
        mock.patch.object(placement, "read_topology", lambda *_: cpus),
        mock.patch.object(placement, "allowed_nodes", lambda *_: {0, 1}),
        mock.patch.object(_core, "interleave_refusal", lambda nodes: ""),
    ):
        return load_argument("interleave_nodes")(folder, settings)


def preferred(folder: Path, settings: tuple[str, ...]) -> Any:
    """Returns the kernels that a tuning of this machine selects."""
    tuning = Tuning(key_here(read_settings(None, SMALL).settings), tuple(TUNED))
    (folder / "tuning.json").write_text(write_tuning(tuning, []))
    return load_argument("tuning")(folder, settings)


MACHINE_EFFECTS: dict[str, Effect] = {
    "device.isa": Effect("generic", load_argument("isa"), "auto", "generic"),
    "device.numa": Effect("first_touch", interleaved, [0, 1], []),
    "device.tuning": Effect(f"{FOLDER}/tuning.json", preferred, [], TUNED),
}
