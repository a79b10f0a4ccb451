"""Every refusal of a setting, alone or with others, names its place, what was found and what is expected."""

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from imp_service.config import Config, ConfigError, Settings, read_settings
from imp_service.config.files import MAX_FILE_BYTES
from imp_service.config.render import render
from imp_service.config.settings import TABLE
from imp_service.config.table import Key, Section, find
from imp_service.config.toml import read_path

# A key, a value in the file, a value in a variable, and a part of the message.
VALUES = [
    ("scheduler.max_running", '"64"', None, 'found "64", expected a whole number from 1 to 4096'),
    ("scheduler.max_running", "12abc", "12abc", "found 12abc, expected a whole number from 1 to 4096"),
    ("scheduler.max_running", "0", "0", "found 0, expected a whole number from 1 to 4096"),
    ("scheduler.max_running", "4097", "4097", "found 4097, expected a whole number"),
    ("scheduler.max_running", "-1", "-1", "found -1, expected a whole number"),
    ("scheduler.max_running", "18446744073709551616", "18446744073709551616", "found 18446744073709551616, expected"),
    ("scheduler.max_running", "1" * 100, None, "found a number of more than 30 digits, expected"),
    ("scheduler.max_running", "1.0", "1.0", "found 1.0, expected a whole number"),
    ("scheduler.max_running", "true", "true", "found true, expected a whole number"),
    ("scheduler.max_running", "[64]", "[64]", "found [64], expected a whole number"),
    ("scheduler.max_running", "{ a = 1 }", None, "found a table, expected a whole number"),
    ("scheduler.max_running", "1979-05-27", "1979-05-27", "found 1979-05-27, expected a whole number"),
    ("scheduler.max_waiting", "0", "0", "found 0, expected a whole number from 1 to 65536"),
    ("scheduler.tenant_share", "nan", "nan", "found nan, expected a number from 0.01 to 1"),
    ("scheduler.tenant_share", "inf", "inf", "found inf, expected a number from 0.01 to 1"),
    ("scheduler.tenant_share", "-inf", "-inf", "found -inf, expected a number from 0.01 to 1"),
    ("scheduler.tenant_share", "1.0000001", "1.0000001", "expected a number from 0.01 to 1"),
    ("scheduler.tenant_share", "false", "false", "found false, expected a number from 0.01 to 1"),
    ("scheduler.max_waiting_tokens", '"1 MiB"', "1 MiB", "expected 1 to 1073741824, as a whole number or as"),
    ("scheduler.max_waiting_tokens", '"1e3"', None, 'found "1e3", expected'),
    ("kv.bytes", '"8GB"', "8GB", 'expected "auto" or 1 KiB to 64 TiB, as a whole number or as "8GiB"'),
    ("kv.bytes", '"8k"', "8k", 'expected "auto" or 1 KiB to 64 TiB'),
    ("kv.bytes", '"0.3B"', "0.3B", 'expected "auto" or 1 KiB to 64 TiB'),
    ("kv.bytes", "0", "0", 'found 0, expected "auto" or 1 KiB to 64 TiB'),
    ("kv.bytes", '"Auto"', "Auto", 'expected "auto" or'),
    ("kv.block_tokens", "24", "24", "found 24, expected 16, 32, 64, 128 or 256"),
    ("kv.block_tokens", "16.0", "16.0", "found 16.0, expected 16, 32"),
    ("kv.prefix_cache", "1", "1", "found 1, expected true or false"),
    ("kv.prefix_cache", '"yes"', "yes", "yes"),
    ("kv.dtype", '"q4_0"', "q4_0", '"rot3" or "rot2", or two of them as "keys/values"; the nearest is "rot4"'),
    ("kv.dtype", '"q8_0/rot4/rot4"', "q8_0/rot4/rot4", 'or "f32", "f16", "bf16", "q8_0", "rot8", "rot4", "rot3" or'),
    ("scheduler.max_wait", "60", "60", "found 60, expected 1ms to 24h, with its unit"),
    ("scheduler.max_wait", '"60"', None, 'found "60", expected 1ms to 24h, with its unit'),
    ("scheduler.max_wait", '"0s"', "0s", "expected 1ms to 24h"),
    ("scheduler.max_wait", '"-5s"', "-5s", "expected 1ms to 24h"),
    ("scheduler.max_wait", '"0.0000001s"', "0.0000001s", "expected 1ms to 24h"),
    ("model.path", "7", None, "found 7, expected a path, a string"),
    ("model.path", '""', "", "expected a path, a string"),
    ("model.path", '"a\\u0000b"', None, "expected a path, a string"),
    ("model.sha256", '"12"', "12", "expected 64 hexadecimal digits"),
    ("model.overrides.eos_token_ids", "[1, -2]", "[1, -2]", "found [1, -2], expected a list of at most 256"),
    ("model.overrides.eos_token_ids", "3", None, "found 3, expected a list of at most 256"),
    ("listen.grpc", '["[::1]:65536"]', None, "or unix:///path, with a port of at most 65535"),
    ("model.overrides.eos_token_ids", "[[1]]", None, "found a list of lists or tables, expected a list"),
    ("model.overrides.rope_scaling", '"ntk"', "ntk", 'expected "none", "linear", "yarn" or "llama3"'),
    ("model.overrides.gemm", '"reference"', "reference", 'found "reference", expected a table of keys'),
    ("kv", '"info"', "info", 'found "info", expected a section of keys'),
]  # fmt: skip


def _refusal(load_text, *arguments: str, **variables: str) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        load_text(*arguments, **variables)
    assert caught.value.reason == "CONFIG_INVALID"
    assert "\n" not in caught.value.message
    assert len(caught.value.message.encode()) < 450
    return caught.value


@pytest.mark.parametrize(("key", "value", "_text", "message"), VALUES)
def test_cfg_3_l07_a_bad_value_in_the_file(key: str, value: str, _text: str | None, message: str, load_text):
    section, _, name = key.rpartition(".")
    text = f"# line 1\n[{section}]\n\n{name} = {value}\n" if section else f"# line 1\n\n\n{name} = {value}\n"
    error = _refusal(load_text, text)
    assert error.message.startswith(f"imp.conf:4:{key}")
    assert message in error.message


@pytest.mark.parametrize(("key", "_value", "text", "message"), [row for row in VALUES if row[2] is not None])
def test_cfg_3_l09_a_bad_value_in_set_and_in_a_variable(key: str, _value: str, text: str, message: str, load_text):
    by_set = _refusal(load_text, "", f"{key}={text}")
    assert by_set.message.startswith(f"--set {key}")
    assert message in by_set.message
    name = "IMP_" + key.upper().replace(".", "__")
    if "__" in name[4:]:
        by_variable = _refusal(load_text, "", **{name: text})
        assert by_variable.message.startswith(f"{name}: {key}")
        assert message in by_variable.message


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("model.overrides.eos_token_ids", "3", "found 3, expected [3], a list of at most 256"),
        ("model.overrides.eos_token_ids", "-3", "found -3, expected a list of at most 256"),
        ("listen.grpc", "127.0.0.1:77", 'found 127.0.0.1:77, expected ["127.0.0.1:77"], a list of at most 8'),
    ],
)
def test_cfg_3_an_item_instead_of_a_list_is_shown_as_a_list(key: str, text: str, message: str, load_text):
    assert message in _refusal(load_text, "", f"{key}={text}").message


UNKNOWN = [
    ("scheduler.max_runing", "scheduler.max_running"),
    ("schedular.max_running", "scheduler"),
    ("device.max_running", "scheduler.max_running"),
    ("model.overrides.rope_thta", "model.overrides.rope_theta"),
    ("model.overrides.rope_scaling.factr", "model.overrides.rope_scaling.factor"),
    ("model.overrides.default_sampling.temprature", "model.overrides.default_sampling.temperature"),
    ("models.second.pth", "models.second.path"),
    ("speculation.mode", ""),
    ("zzzz.q", ""),
]


@pytest.mark.parametrize(("key", "nearest"), UNKNOWN)
def test_cfg_3_l09_an_unknown_key_is_named_with_the_nearest_known(key: str, nearest: str, load_text):
    messages = [
        _refusal(load_text, f"\n\n{key} = 1").message,
        _refusal(load_text, "", f"{key}=1").message,
        _refusal(load_text, "", **{"IMP_" + key.upper().replace(".", "__"): "1"}).message,
    ]
    assert messages[0].startswith("imp.conf:3:")
    assert messages[1].startswith("--set ")
    assert messages[2].startswith("IMP_")
    for message in messages:
        assert f"unknown key; nearest known: {nearest}" in message
        offered = read_path(message.rpartition("nearest known: ")[2])
        assert isinstance(find(TABLE, offered), Key | Section)


def test_cfg_3_unknown_sections_and_misplaced_keys(load_text):
    assert _refusal(load_text, "[sheduler]\nmax_running = 1").message.endswith("nearest known: scheduler")
    error = _refusal(load_text, "max_running = 1")
    assert error.message == "imp.conf:1:max_running: unknown key; nearest known: scheduler.max_running"
    error = _refusal(load_text, "[scheduler]\nMAX_RUNNING = 1")
    assert error.message.endswith("unknown key; nearest known: scheduler.max_running")
    error = _refusal(load_text, "", "kv.dtype.deep=1")
    assert error.message == "--set kv.dtype.deep: unknown key; nearest known: kv.dtype"


TWICE = [
    "[kv]\nblock_tokens = 16\nblock_tokens = 32\n",
    "[kv]\nblock_tokens = 16\n[kv]\n",
    "kv.block_tokens = 16\n\nkv.block_tokens = 32\n",
    "kv = { block_tokens = 16, block_tokens = 32 }\n",
]


@pytest.mark.parametrize("text", TWICE)
def test_cfg_3_l07_a_key_twice(text: str, load_text):
    message = _refusal(load_text, text).message
    assert message.endswith(": set twice")
    assert message.startswith(f"imp.conf:{text.rstrip().count(chr(10)) + 1}:kv")


UNQUOTED = [
    ("kv.dtype", "f16", 'strings need quotes: dtype = "f16"'),
    ("model.path", "/models/m.gguf", 'strings need quotes: path = "/models/m.gguf"'),
    ("kv.bytes", "8GiB", 'strings need quotes: bytes = "8GiB"'),
    ("scheduler.max_wait", "60s  # a minute", 'strings need quotes: max_wait = "60s"'),
    ("device.threads", "auto", 'strings need quotes: threads = "auto"'),
    ("device.threads", "two", 'found two, expected "auto" or a whole number from 1 to 1024'),
    ("kv.dtpye", "f16", "unknown key; nearest known: kv.dtype"),
    ("kv.dtype", '"f16', "not TOML"),
    ("kv.dtype", "", "not TOML"),
]


@pytest.mark.parametrize(("key", "value", "message"), UNQUOTED)
def test_cfg_3_strings_need_quotes(key: str, value: str, message: str, load_text):
    section, name = key.split(".")
    error = _refusal(load_text, f"[{section}]\n# a comment\n{name} = {value}\n")
    assert error.message.startswith(f"imp.conf:3:{key}: {message}")


BYTES = [
    (b"\xef\xbb\xbf[kv]\n", "imp.conf:1: found a byte order mark"),
    (b"[kv]\n\nblock_tokens = \xff", "imp.conf:3: found byte 0xff, expected UTF-8"),
    (b"[kv]\n# \x00\n", "imp.conf:2: not TOML"),
    (b"[kv]\nblock_tokens\n", "imp.conf:2: not TOML"),
    (b"kv = " + b"[" * 5000, "too deep"),
    (b"a." * 20000 + b"a = 1", "imp.conf:1: found a key of more than 16 parts"),
    (b"kv = { x = 1, " + b"a." * 20000 + b"a = 1 }", "imp.conf:1: found a key of more than 16 parts"),
    (b"[" + b"a." * 20000 + b"a]", "imp.conf:1: found a key of more than 16 parts"),
    (b'x = "' + b'\\"' * 200000, "imp.conf:1:x: unknown key"),
    (b"scheduler.max_running = " + b"9" * 5000, "imp.conf: cannot be read"),
    (b"#" * (MAX_FILE_BYTES + 1), f"found more than {MAX_FILE_BYTES} bytes"),
]


@pytest.mark.few(5)
@pytest.mark.parametrize(("content", "message"), BYTES)
def test_l07_bytes_that_are_no_text_of_settings(content: bytes, message: str, load_text):
    assert message in _refusal(load_text, content).message


def test_l07_what_is_no_file(machine, load_text):
    os.mkfifo(machine / "pipe.conf")
    for path, found in ((machine, "directory"), (machine / "pipe.conf", "special file")):
        with pytest.raises(ConfigError, match=f"found a {found}, expected a regular file"):
            read_settings(str(path), variables={})


def test_l08_an_empty_file_and_line_ends_of_two_characters(load_text):
    assert load_text("").settings == Settings()
    config = load_text("# first\r\n[kv]\r\nblock_tokens = 32\r\n")
    assert config.settings.kv.block_tokens == 32
    assert "imp.conf:3" in [str(entry.origin) for entry in config.entries()]


def test_cfg_3_set_without_a_key(load_text):
    for text in ("", "max_running", "=3", "a b=3", "scheduler.max_running", "a\n.b=3"):
        assert _refusal(load_text, "", text).message.startswith("--set: found ")


def test_cfg_3_a_value_does_not_smuggle_in_another_key(load_text):
    error = _refusal(load_text, "", "kv.block_tokens=32\nprefix_cache = false")
    assert "expected 16, 32" in error.message


def test_cfg_3_a_bad_value_is_an_error_also_where_a_higher_source_sets_the_key(load_text):
    """No source is applied partially: a bad value in any of them gives no settings."""
    _refusal(load_text, "kv.block_tokens = 17", "kv.block_tokens=32")
    _refusal(load_text, "", "kv.block_tokens=17", "kv.block_tokens=32")
    _refusal(load_text, "", "kv.block_tokens=32", IMP_KV__BLOCK_TOKENS="17")


@pytest.mark.long
@settings(max_examples=3 * settings().max_examples, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_cfg_3_any_text_gives_settings_or_a_config_error(data: st.DataObject, load_text):
    """The text is a mutated part of the shipped file: lines dropped, repeated or swapped, and characters changed."""
    lines = render().splitlines(keepends=True)
    start = data.draw(st.integers(0, len(lines) - 8))
    chosen = data.draw(st.lists(st.sampled_from(lines[start : start + 8]), max_size=8))
    text = "".join(chosen)
    for _ in range(data.draw(st.integers(0, 3))):
        at = data.draw(st.integers(0, len(text)))
        text = text[:at] + data.draw(st.text("=[]{}\"'#.\\\n -019aé\0", max_size=3)) + text[at + 1 :]
    try:
        config = load_text(text)
    except ConfigError as error:
        assert error.message.startswith("imp.conf")
        assert "\n" not in error.message
    else:
        assert isinstance(config, Config)


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


def test_cfg_9_values_at_the_limit_do_not_contradict(load_text):
    config = load_text("[scheduler]\nmax_running = 512\nprefill_chunk = 512\n")
    assert config.settings.scheduler.max_running == config.settings.scheduler.step_tokens
