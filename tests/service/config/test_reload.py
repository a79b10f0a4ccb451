"""New settings for a running process: which are applied, which need a restart, and which are refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from imp_service.config import AUTO, ConfigError
from imp_service.config.reload import reloaded
from imp_service.config.settings import TABLE
from imp_service.config.table import keys_of
from imp_service.config.toml import write_path

BOUNDARY = "[connection]\nmax_age = '1h'\nmax_age_grace = '{grace}'\n[limits]\nrequest_time = '{time}'\n"


def test_cfg_15_only_keys_that_the_table_marks_are_taken(load_text) -> None:
    before = load_text("[drain]\ngrace = '10s'\n[scheduler]\nmax_running = 8\n")
    after = load_text("[drain]\ndelay = '1s'\n[scheduler]\nmax_running = 16\n[log]\nlevel = 'debug'\n")
    new = reloaded(before, after)
    assert new.changed == ("drain.delay", "drain.grace", "log.level")
    assert new.needs_restart == ("scheduler.max_running",)
    settings = new.config.settings
    assert (settings.drain.delay, settings.drain.grace) == (timedelta(seconds=1), timedelta(seconds=30))
    assert (settings.log.level, settings.scheduler.max_running) == ("debug", 8)
    assert reloaded(new.config, after).changed == ()


def test_cfg_15_a_resolved_auto_needs_no_restart_and_a_number_does(load_text) -> None:
    before = load_text("").resolve(("device", "threads"), 2, "affinity")
    assert load_text("").settings.device.threads is AUTO
    assert reloaded(before, load_text("")).needs_restart == ()
    assert reloaded(before, load_text("[device]\nthreads = 3\n")).needs_restart == ("device.threads",)


def test_cfg_15_a_new_model_of_models_needs_a_restart(load_text) -> None:
    after = load_text("[models.more]\npath = 'more.gguf'\n")
    new = reloaded(load_text(""), after)
    assert "models.more.path" in new.needs_restart and not new.changed
    assert "models.more.path" in reloaded(after, load_text("")).needs_restart


def test_cfg_15_a_new_value_that_contradicts_one_that_stays_is_refused(load_text) -> None:
    """Both new values are valid together, but one of them needs a restart."""
    before = load_text(BOUNDARY.format(grace="1h", time="1h"))
    after = load_text(BOUNDARY.format(grace="2h", time="2h"))
    with pytest.raises(ConfigError, match="max_age_grace"):
        reloaded(before, after)


def test_cfg_15_what_sizes_or_shapes_the_server_never_reloads() -> None:
    """Keys that decide memory, threads, sockets or identity do not reload."""
    marked = {write_path(path) for path, key in keys_of(TABLE) if key.reloads}
    sections = {name.partition(".")[0] for name in marked}
    assert sections == {"limits", "sessions", "features", "http", "chunk", "slow_client", "drain", "watchdog", "log"}
    assert not marked & {"sessions.max", "sessions.evict", "slow_client.bytes", "limits.max_context", "log.format"}
