"""Which source takes precedence, which file is read, and what `-m` selects."""

from itertools import combinations
from pathlib import Path

import pytest

from imp_service.config import Config, ConfigError, read_settings
from imp_service.config.select import select_model
from imp_service.config.sources import of_option

# From lowest to highest; the default applies when none is set.
SOURCES = {"file": 101, "environment": 102, "--set": 103}
SUBSETS = [subset for size in range(4) for subset in combinations(SOURCES, size)]


@pytest.mark.parametrize("present", SUBSETS, ids=["+".join(subset) or "none" for subset in SUBSETS])
def test_cfg_2_the_highest_source_wins(present: tuple[str, ...], load_text):
    config: Config = load_text(
        f"scheduler.max_running = {SOURCES['file']}" if "file" in present else "",
        *([f"scheduler.max_running={SOURCES['--set']}"] if "--set" in present else []),
        **({"IMP_SCHEDULER__MAX_RUNNING": str(SOURCES["environment"])} if "environment" in present else {}),
    )
    assert config.settings.scheduler.max_running == (SOURCES[present[-1]] if present else 64)
    (entry,) = [entry for entry in config.entries() if entry.path == ("scheduler", "max_running")]
    assert entry.origin.source == (present[-1] if present else "default")


@pytest.mark.parametrize(("low", "high"), list(combinations(SOURCES, 2)))
def test_cfg_2_two_sources_of_different_keys_both_count(low: str, high: str, load_text):
    """A higher source replaces single keys, not the section."""
    keys = {low: ("max_running", 7), high: ("max_waiting", 8)}
    file = "".join(f"scheduler.{key} = {value}\n" for source, (key, value) in keys.items() if source == "file")
    texts = [f"scheduler.{key}={value}" for source, (key, value) in keys.items() if source == "--set"]
    variables = {
        f"IMP_SCHEDULER__{key.upper()}": str(value) for source, (key, value) in keys.items() if source == "environment"
    }
    scheduler = load_text(file, *texts, **variables).settings.scheduler
    assert (scheduler.max_running, scheduler.max_waiting) == (7, 8)


def test_cfg_2_a_later_set_wins(load_text):
    assert load_text("", "kv.block_tokens=32", "kv.block_tokens=64").settings.kv.block_tokens == 64


PLACES = ["--config", "IMP_CONFIG", "./imp.conf", "~/.config/imp/imp.conf", "/etc/imp/imp.conf"]


def _load_from(machine: Path, present: tuple[str, ...]) -> Config:
    paths = {
        "--config": machine / "option.conf",
        "IMP_CONFIG": machine / "variable.conf",
        "./imp.conf": machine / "imp.conf",
        "~/.config/imp/imp.conf": machine / "home/.config/imp/imp.conf",
        "/etc/imp/imp.conf": machine / "root/etc/imp/imp.conf",
    }
    for place in present:
        paths[place].parent.mkdir(parents=True, exist_ok=True)
        paths[place].write_text(f"scheduler.max_running = {100 + PLACES.index(place)}")
    variables = {"HOME": str(machine / "home")}
    if "IMP_CONFIG" in present:
        variables["IMP_CONFIG"] = str(paths["IMP_CONFIG"])
    option = str(paths["--config"]) if "--config" in present else None
    return read_settings(option, variables=variables, root=machine / "root")


@pytest.mark.parametrize("present", [subset for size in range(6) for subset in combinations(PLACES, size)])
def test_cfg_2_the_first_file_in_the_search_order_is_the_only_one_read(present: tuple[str, ...], machine: Path):
    config = _load_from(machine, present)
    assert config.settings.scheduler.max_running == (100 + PLACES.index(present[0]) if present else 64)
    assert (config.file is None) == (not present)


def test_cfg_2_without_a_home_the_home_is_passed_over(machine: Path):
    (machine / "etc/imp").mkdir(parents=True)
    (machine / "etc/imp/imp.conf").write_text("scheduler.max_running = 9")
    assert read_settings(variables={}, root=machine).settings.scheduler.max_running == 9


@pytest.mark.parametrize("named", ["--config", "IMP_CONFIG"])
@pytest.mark.parametrize("path", ["nowhere.conf", "imp.conf/below", ""])
def test_cfg_4_l09_a_named_file_must_exist(named: str, path: str, machine: Path):
    (machine / "imp.conf").write_text("")  # without a named file imp would read this one
    with pytest.raises(ConfigError) as caught:
        read_settings(
            path if named == "--config" else None, variables={"IMP_CONFIG": path} if named == "IMP_CONFIG" else {}
        )
    assert caught.value.reason == "CONFIG_INVALID"
    assert named in caught.value.message
    assert path in caught.value.message


def test_cfg_4_unnamed_candidates_may_all_be_absent(machine: Path):
    assert read_settings(variables={"HOME": "/nowhere"}, root=machine).file is None


def test_cfg_4_l07_a_file_that_may_not_be_read_is_an_error(machine: Path, monkeypatch: pytest.MonkeyPatch):
    """This holds for a default file too. The test replaces the kernel's refusal, since root may read everything."""
    (machine / "imp.conf").write_text("")

    def refuse(*_: object, **__: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("imp_service.config.files.os.open", refuse)
    with pytest.raises(ConfigError) as caught:
        read_settings(variables={}, root=machine)
    assert caught.value.reason == "CONFIG_PERMISSION"


def test_cfg_6_what_an_option_says_goes_before_set_and_an_error_names_the_option(load_text):
    said = of_option("--context", "model.overrides.max_context", "4K")
    config = load_text("", "model.overrides.max_context=8K", said)
    assert config.settings.model.overrides.max_context == 4096
    origins = {entry.name: str(entry.origin) for entry in config.entries()}
    assert origins["model.overrides.max_context"] == "--context"
    with pytest.raises(ConfigError, match=r"^CONFIG_INVALID: --context: found 0, expected 1 to "):
        load_text("", of_option("--context", "model.overrides.max_context", "0"))


TEXT = """
[model]
path = "served.gguf"
sha256 = "%s"
overrides.max_context = 1024
[models.small]
path = "small.gguf"
overrides.rope_theta = 5e5
""" % ("0" * 64)


def test_a_file_is_the_model_and_its_origin_is_the_option(load_text):
    config = select_model(load_text(), "other.gguf")
    assert config.settings.model.path == "other.gguf"
    assert {str(entry.origin) for entry in config.entries() if entry.name == "model.path"} == {"--model"}


def test_what_the_file_says_of_another_model_does_not_hold_but_set_does(load_text):
    model = select_model(load_text(TEXT, "model.overrides.kv_dtype=f32"), "other.gguf").settings.model
    assert (model.path, model.sha256, model.overrides.max_context) == ("other.gguf", None, None)
    assert model.overrides.kv_dtype == "f32"


def test_what_the_file_says_of_this_model_or_of_none_holds(load_text):
    assert select_model(load_text(TEXT), "served.gguf").settings.model.sha256 == "0" * 64
    overrides = "[model.overrides]\nmax_context = 1024\n"
    assert select_model(load_text(overrides), "other.gguf").settings.model.overrides.max_context == 1024


def test_a_name_of_models_brings_that_models_settings(load_text):
    model = select_model(load_text(TEXT, "model.overrides.kv_dtype=f32"), "small").settings.model
    assert (model.path, model.name, model.sha256) == ("small.gguf", "small", None)
    assert (model.overrides.rope_theta, model.overrides.kv_dtype) == (5e5, "f32")


def test_a_file_takes_precedence_over_an_entry_of_the_same_name(machine, load_text):
    (machine / "small").touch()
    assert select_model(load_text(TEXT), "small").settings.model.path == "small"


def test_an_empty_word_is_no_path(load_text):
    with pytest.raises(ConfigError, match=r"^CONFIG_INVALID: --model: found nothing, expected a path"):
        select_model(load_text(), "")
