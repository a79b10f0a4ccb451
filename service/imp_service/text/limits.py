"""The limits of imp_service.text, from the keys of [text] and [limits] in imp.conf."""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class TextLimits:
    """Limits of one template, one rendering and one constraint."""

    # Chat templates.
    template_bytes: int = 1 * MIB
    template_iterations: int = 1_000_000
    # Largest string or sequence that one operator, filter or method of a template may make.
    template_operand_bytes: int = 1 * MIB
    template_macro_depth: int = 32
    # Processor time of one rendering. Iterations are limited too, but a single one can take long.
    template_ms: int = 5_000
    render_bytes: int = 4 * MIB

    # Constraints.
    constraint_bytes: int = 64 * KIB
    regex_bytes: int = 8 * KIB
    nesting: int = 64
    repeat: int = 1_024
    choices: int = 1_024
    choice_bytes: int = 1_024
    compile_ms: int = 1_000
    compile_bytes: int = 32 * MIB
    cache_bytes: int = 64 * MIB
