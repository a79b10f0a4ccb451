"""`-m` selects a file or a name of [models]; and which settings then still apply."""

import pytest

from imp_service.config import ConfigError
from imp_service.config.select import select_model

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


def test_a_file_of_that_name_goes_before_it(machine, load_text):
    (machine / "small").touch()
    assert select_model(load_text(TEXT), "small").settings.model.path == "small"


def test_an_empty_word_is_no_path(load_text):
    with pytest.raises(ConfigError, match=r"^CONFIG_INVALID: --model: found nothing, expected a path"):
        select_model(load_text(), "")
