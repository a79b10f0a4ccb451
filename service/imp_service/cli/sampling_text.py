"""A default sampler as rows of text."""

from collections.abc import Mapping, Sequence

ORIGINS = {"imp.conf": "imp.conf", "model": "the model's file", "imp": "imp, because the model's file recommends none"}


def sampling_rows(sampling: object, origins: Mapping[str, str]) -> Sequence[tuple[str, str, str]]:
    """Name, value and origin of each number that has an effect, or that a file sets. An older server has no origins."""
    from imp_service.tables import SAMPLER_FIELDS

    rows = []
    for name, field in SAMPLER_FIELDS.items():
        value, origin = getattr(sampling, name), origins.get(name, "")
        if value != field.default or origin not in ("", "imp"):
            rows.append((name, f"{value:g}", ORIGINS.get(origin, origin)))
    return rows


def sampling_line(sampling: object, origins: Mapping[str, str]) -> str:
    """The same as one line."""
    rows = sampling_rows(sampling, origins)
    return ", ".join(f"{name} {value} ({origin})" for name, value, origin in rows) or "none has an effect"
