"""Values that are valid alone and impossible together."""

import pytest

from imp_service.config import ConfigError

PAIRS = [
    ("[scheduler]\nmax_running = 600\n", "imp.conf:2:scheduler.max_running", "scheduler.step_tokens, 512"),
    (
        "[scheduler]\nprefill_chunk = 256\nstep_tokens = 128\n",
        "imp.conf:2:scheduler.prefill_chunk",
        "scheduler.step_tokens",
    ),
    ('[models.a]\nname = "x"\n', "imp.conf:2:models.a", "models.a has no path"),
    ("\n[models.a]\n", "imp.conf:2:models.a.path", "models.a has no path"),
    (
        '[model]\nname = "x"\n[models.x]\npath = "x.gguf"\n',
        "imp.conf:2:model.name",
        "x is also the name of model.name",
    ),
    (
        '[models.a]\npath = "a"\nname = "b"\n[models.b]\npath = "b"\n',
        "imp.conf:3:models.a.name",
        "b is also the name of models.a.name",
    ),
]


@pytest.mark.parametrize(("text", "where", "why"), PAIRS)
def test_cfg_9_l10_both_keys_are_named(text: str, where: str, why: str, load_text):
    with pytest.raises(ConfigError) as caught:
        load_text(text)
    assert where in caught.value.message
    assert why in caught.value.message


def test_cfg_9_a_higher_source_is_blamed_for_what_it_brought(load_text):
    with pytest.raises(ConfigError, match=r"^CONFIG_INVALID: --set scheduler\.max_running: "):
        load_text("", "scheduler.max_running=600")


def test_cfg_9_what_stands_at_the_limit_works(load_text):
    config = load_text("[scheduler]\nmax_running = 512\nprefill_chunk = 512\n")
    assert config.settings.scheduler.max_running == config.settings.scheduler.step_tokens
