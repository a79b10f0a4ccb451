"""The distributions of imp: the same sources under several names, because a wheel either has CUDA code or has none."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Distribution:
    """One name in package indexes, and how its wheel is built."""

    name: str
    cuda: str  # IMP_CUDA in the build
    licence: str
    backends: str  # as `imp --version` prints them

    @property
    def file_name(self) -> str:
        """The name as file names spell it."""
        return self.name.replace("-", "_")


PLAIN = Distribution("imp-service", "off", "Apache-2.0", "cpu")
# This wheel contains NVIDIA's CUDA runtime.
CUDA = Distribution("imp-service-cuda13", "on", "Apache-2.0 AND LicenseRef-NVIDIA-Proprietary", "cpu, cuda")
DISTRIBUTIONS = (PLAIN, CUDA)


def rename(source: Path, distribution: Distribution) -> None:
    """Renames the sources in this folder from PLAIN to another distribution."""
    path = source / "pyproject.toml"
    text = path.read_text()
    for key, old, new in (("name", PLAIN.name, distribution.name), ("license", PLAIN.licence, distribution.licence)):
        text, n = re.subn(rf'^{key} = "{re.escape(old)}"$', f'{key} = "{new}"', text, flags=re.MULTILINE)
        if n != 1:
            raise ValueError(f'pyproject.toml has {n} lines {key} = "{old}", expected 1')
    path.write_text(text)
