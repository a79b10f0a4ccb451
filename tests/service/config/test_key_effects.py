"""Every key of imp.conf has an effect: the test sets each alone, and compares what it decides with and without it."""

from __future__ import annotations

import asyncio
import time
from functools import reduce
from pathlib import Path

import pytest

from imp_service.config import Config, read_settings
from imp_service.config.select import select_model
from imp_service.config.settings import TABLE
from imp_service.config.table import ANY_NAME, keys_of
from imp_service.serving.server_state import ServerState
from support.key_effects.core_keys import CORE_EFFECTS, ENGINE_EFFECTS
from support.key_effects.effect import FOLDER, Effect
from support.key_effects.http_keys import HTTP_EFFECTS
from support.key_effects.machine_keys import MACHINE_EFFECTS
from support.key_effects.running import Running
from support.key_effects.server_keys import SERVER_EFFECTS
from support.key_effects.text_keys import TEXT_EFFECTS
from support.key_effects.wire_keys import WIRE_EFFECTS
from support.servers.loop_thread import loop_thread
from support.servers.served_models import built_in

EFFECTS: dict[str, Effect] = {
    **CORE_EFFECTS,
    **MACHINE_EFFECTS,
    **WIRE_EFFECTS,
    **HTTP_EFFECTS,
    **TEXT_EFFECTS,
    **SERVER_EFFECTS,
}
NAMED = f"models.{ANY_NAME}."


def keys() -> list[str]:
    return [".".join(path) for path, _ in keys_of(TABLE)]


# A key that becomes one of them is tried with the value that it has in the tables.
RELOADED = [".".join(path) for path, key in keys_of(TABLE) if key.reloads]


def name_of(given: object) -> str | None:
    return given if isinstance(given, str) else ""


def written(text: str, folder: Path, name: str = "") -> str:
    return text.replace(FOLDER, str(folder)).replace(ANY_NAME, name)


def test_cfg_14_every_key_is_here() -> None:
    assert {key for key in keys() if not key.startswith(NAMED)} == EFFECTS.keys()


@pytest.mark.parametrize(("key", "effect"), [*EFFECTS.items(), *ENGINE_EFFECTS.items()], ids=name_of)
def test_cfg_14_a_key_has_its_effect(key: str, effect: Effect, tmp_path: Path) -> None:
    also = tuple(written(setting, tmp_path) for setting in effect.also)
    setting = written(f"{key}={effect.value}", tmp_path, effect.name)
    assert effect.observe(tmp_path, also) == effect.without
    assert effect.observe(tmp_path, (*also, setting)) == effect.seen


@pytest.mark.parametrize("key", RELOADED)
def test_cfg_14_lif_18_a_key_that_reloads_has_its_effect_on_a_running_server(key: str, tmp_path: Path) -> None:
    effect = EFFECTS[key]
    assert isinstance(effect.observe, Running), "only a running server can show the effect of a reload"
    assert effect.seen != effect.without
    also = tuple(written(setting, tmp_path) for setting in effect.also)
    assert effect.observe.after_reload(also, f"{key}={effect.value}") == ((key,), effect.seen)


def test_lif_18_a_reload_while_the_model_loads_is_kept() -> None:
    given = ["device.threads=auto", "kv.bytes=8MiB", "text.threads=1"]
    fresh = read_settings(None, [*given, *(f"{key}={EFFECTS[key].value}" for key in RELOADED)])

    async def load() -> Config:
        state = ServerState(read_settings(None, given), reread=lambda: fresh)
        try:
            loading = state.config
            assert set((await state.reload.run()).changed) == set(RELOADED)
            state.adopt(await asyncio.to_thread(built_in().make, loading, time.monotonic))
            return state.config
        finally:
            state.close()

    config = loop_thread().run(load())
    for key in RELOADED:
        assert read(config.settings, key) == read(fresh.settings, key), key
    assert config.settings.device.threads != fresh.settings.device.threads  # what the load made of `auto` is kept, too


@pytest.mark.parametrize("key", [key for key in keys() if key.startswith(NAMED)])
def test_cfg_14_a_key_of_a_named_model_is_the_models_where_that_is_chosen(key: str, tmp_path: Path) -> None:
    inner = key.removeprefix(NAMED)
    effect = EFFECTS[f"model.{inner}"]
    setting = f"{written(inner, tmp_path, effect.name)}={written(effect.value, tmp_path)}"
    entry = read_settings(None, ["models.mine.path=a.gguf", f"models.mine.{setting}"])
    alone = read_settings(None, ["model.name=mine", "model.path=a.gguf", f"model.{setting}"])
    without = read_settings(None, ["model.name=other", "model.path=b.gguf"])
    assert select_model(entry, "mine").settings.model == alone.settings.model
    assert read(alone.settings.model, inner) != read(without.settings.model, inner)


def read(settings: object, path: str) -> object:
    """Returns the value of a key, or the whole table if users choose its last name."""
    names = path.removesuffix(f".{ANY_NAME}").split(".")
    return reduce(getattr, names, settings)
