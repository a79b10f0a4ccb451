"""Names of instruction sets, and the sets that the settings choose."""

from __future__ import annotations

from imp_service import _core
from imp_service.config import AUTO, Settings


def isa_setting(settings: Settings) -> str:
    """The setting as the core takes it: `auto`, or words joined with +."""
    isa = settings.device.isa
    return "auto" if isa is AUTO else str(isa)


def isa_of(settings: Settings) -> str:
    """What kernels may use under these settings: equal words for equal sets of features."""
    return isa_name(isa_setting(settings))


def isa_name(isa: str = "auto") -> str:
    """The fewest words for the same features, joined with +; auto: for all that this CPU has."""
    name: str = _core.isa_name(isa)
    return name


def missing_isa(isa: str) -> str:
    """The features that this CPU lacks, in words; empty where it has all."""
    missing: str = _core.missing_isa(isa)
    return missing
