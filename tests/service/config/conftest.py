"""What the configuration tests share: loading a text as ./imp.conf of an otherwise empty machine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from imp_service.config import Config, load

Load = Callable[..., Config]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and root, with no variables of the process's own in sight."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load_text(machine: Path) -> Load:
    """Loads a text as ./imp.conf, with the variables and `--set` texts given."""

    def load_it(text: str | bytes = "", *assignments: str, **variables: str) -> Config:
        (machine / "imp.conf").write_bytes(text if isinstance(text, bytes) else text.encode())
        return load(None, assignments, variables=variables, root=machine)

    return load_it
