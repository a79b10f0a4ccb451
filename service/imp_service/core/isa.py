"""Names of instruction sets, and the sets that the settings choose."""

from __future__ import annotations

from imp_service import _core
from imp_service.config import AUTO, Settings


def isa_setting(settings: Settings) -> str:
    """The setting as the core takes it: `auto`, or words joined with +."""
    isa = settings.device.isa
    return "auto" if isa is AUTO else str(isa)


def isa_of(settings: Settings) -> str:
    """The instruction sets that kernels may use under these settings. Equal sets have equal names."""
    return isa_name(isa_setting(settings))


def isa_name(isa: str = "auto") -> str:
    """The shortest name of the same features, with + between words. `auto` means all features of this CPU."""
    name: str = _core.isa_name(isa)
    return name


def missing_isa(isa: str) -> str:
    """The features of `isa` that this CPU lacks, in words; empty if it has all."""
    missing: str = _core.missing_isa(isa)
    return missing
