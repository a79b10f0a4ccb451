"""Names of the served model where blanks are bad: in URLs, shells and YAML, and in gateways."""

from __future__ import annotations

import re
from collections.abc import Sequence

from imp_service.serving.refusal import Refusal


def public_name(name: str) -> str:
    """The name with `-` for each run of blanks."""
    return re.sub(r"\s+", "-", name.strip())


def require_served(name: str | None, served: Sequence[str], field: str = "model") -> None:
    """Raises MODEL_NOT_SERVED for a name that is not served. Both spellings are known; no name is the served model."""
    if name and name not in served and name not in map(public_name, served):
        names = ", ".join(map(public_name, served))
        raise Refusal(
            "MODEL_NOT_SERVED", f"{field}: {name[:128]} is not served here, expected one of {names}", {"served": names}
        )
