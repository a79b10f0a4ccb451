"""The table of keys, and the shipped imp.conf, which is generated from it."""

import re
from pathlib import Path

import pytest

from imp_service.config import Settings
from imp_service.config.render import render
from imp_service.config.settings import TABLE
from imp_service.config.table import ANY_NAME, Key, find, keys_of
from imp_service.config.toml import write_path

SHIPPED = Path(__file__).parents[3] / "conf/imp.conf"
KEYS = [(path, key) for path, key in keys_of(TABLE) if path[0] != "models"]


def test_cfg_1_the_shipped_file_is_what_the_table_renders():
    assert SHIPPED.read_text(encoding="utf-8") == render()


def test_cfg_1_the_shipped_file_parses_to_exactly_the_defaults(load_text):
    config = load_text(SHIPPED.read_bytes())
    assert config.settings == Settings()
    # The file is not empty: a line of it sets every key that has a default.
    from_file = {entry.path for entry in config.entries() if entry.origin.source == "file"}
    assert from_file == {path for path, key in KEYS if key.default is not None and key.shipped}


def test_cfg_1_the_shipped_file_names_every_key(load_text):
    """With its examples uncommented it sets every key of the table except one for GPUs."""
    lines = SHIPPED.read_text(encoding="utf-8").splitlines()
    head = next(number for number, line in enumerate(lines) if line.startswith("["))
    text = "\n".join(re.sub(r"^# (?!\[)", "", line) for line in lines[head:])
    config = load_text(text)
    set_keys = {entry.path for entry in config.entries() if entry.origin.source == "file"}
    expected = {path for path, key in KEYS if path[-1] != ANY_NAME and key.shipped}
    assert [path[-1] for path, key in KEYS if not key.shipped] == ["unvalidated_kernels"]
    assert set_keys == expected | {("model", "overrides", "gemm", "q4_k"), ("model", "overrides", "kv_layers", "0-1")}


def test_cfg_1_a_changed_default_is_noticed(load_text):
    """Negative control: with one other value in the file, the two differ."""
    changed = SHIPPED.read_text(encoding="utf-8").replace("max_running = 64 ", "max_running = 65 ")
    assert load_text(changed).settings != Settings()


@pytest.mark.few(68)
@pytest.mark.parametrize(("path", "key"), KEYS, ids=[write_path(path) for path, _ in KEYS])
def test_cfg_1_each_key_is_whole(path: tuple[str, ...], key: Key):
    """Each key has a default or example that its kind reads back, and one line of text."""
    value = key.kind.read(key.example) if key.default is None else key.default
    assert key.kind.read(key.kind.plain(value)) == value
    assert key.kind.read_text(_as_text(key.kind.plain(value))) == value
    assert 0 < len(key.text) < 100
    assert "\n" not in key.text
    assert find(TABLE, path) is key


def _as_text(plain: object) -> str:
    return str(plain).lower() if isinstance(plain, bool) else str(plain)


def test_cfg_1_the_models_of_names_have_the_keys_of_model():
    of_model = [path[1:] for path, _ in keys_of(TABLE) if path[0] == "model"]
    assert [path[2:] for path, _ in keys_of(TABLE) if path[0] == "models"] == of_model
