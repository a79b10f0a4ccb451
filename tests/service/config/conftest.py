"""Fixtures of the configuration tests: they load a text as ./imp.conf on an otherwise empty machine."""

from collections.abc import Callable
from pathlib import Path

import pytest

from imp_service.config import Config, read_settings

Load = Callable[..., Config]


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory and root, without variables of this process."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def load_text(machine: Path) -> Load:
    """Returns a function that loads a text as ./imp.conf, with the given variables and `--set` texts."""

    def load_it(text: str | bytes = "", *assignments: str, **variables: str) -> Config:
        (machine / "imp.conf").write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_settings(None, assignments, variables=variables, root=machine)

    return load_it
