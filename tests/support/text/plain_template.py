"""Renders chat templates as other servers do: with plain Jinja, without the limits and marks of imp."""

from __future__ import annotations

import json

from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment


class _PlainGeneration(Extension):
    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: Parser) -> list[object]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def plain_render(source: str, variables: dict[str, object]) -> str:
    """Returns the rendered text."""
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _PlainGeneration]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, **{"ensure_ascii": False, **options})
    return environment.from_string(source).render(**variables)
