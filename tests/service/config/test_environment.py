"""Which environment variables are imp's, and how they are read."""

import ast
from pathlib import Path

import pytest

from imp_service.config import ConfigError, Settings
from imp_service.config.select import select_model
from imp_service.config.sources import _names_without_separator, misspelled_variables

PACKAGE = Path(__file__).parents[3] / "service/imp_service"

# Variables that Kubernetes injects for a Service named imp, those of the build and the tests, and similar names.
NOT_OURS = {
    "IMP_SERVICE_HOST": "10.0.0.7",
    "IMP_SERVICE_PORT": "50051",
    "IMP_SERVICE_PORT_GRPC": "50051",
    "IMP_PORT": "tcp://10.0.0.7:50051",
    "IMP_PORT_50051_TCP": "tcp://10.0.0.7:50051",
    "IMP_PORT_50051_TCP_ADDR": "10.0.0.7",
    "IMP_CUDA": "off",
    "IMP__SERVICE_HOST": "10.0.0.7",
    "SHRIMP_KV__DTYPE": "f32",
    "imp_kv__dtype": "f32",
    "IMP": "1",
}


def test_cfg_5_variables_without_two_underscores_are_ignored(load_text):
    config = load_text("", **NOT_OURS)
    assert config.settings == Settings()
    assert all(entry.origin.source == "default" for entry in config.entries())


def test_cfg_5_variables_with_two_underscores_are_settings(load_text):
    config = load_text("", **NOT_OURS, IMP_KV__DTYPE="f32", IMP_MODEL__OVERRIDES__ROPE_THETA="5e5")
    assert config.settings.kv.dtype == "f32"
    assert config.settings.model.overrides.rope_theta == 500000.0
    origins = {entry.name: str(entry.origin) for entry in config.entries()}
    assert origins["kv.dtype"] == "IMP_KV__DTYPE"
    assert origins["model.overrides.rope_theta"] == "IMP_MODEL__OVERRIDES__ROPE_THETA"


def test_p4_a_name_that_lacks_an_underscore_to_be_a_key_is_reported():
    names = {*NOT_OURS, "IMP_DEVICE_KIND", "IMP_MODEL_OVERRIDES_KV_DTYPE", "IMP_MAX_RUNNING", "IMP_device_kind"}
    assert misspelled_variables(sorted(names)) == [
        "IMP_DEVICE_KIND: is not read, expected IMP_DEVICE__KIND for device.kind",
        "IMP_MODEL_OVERRIDES_KV_DTYPE: is not read, expected IMP_MODEL__OVERRIDES__KV_DTYPE for "
        "model.overrides.kv_dtype",
    ]
    assert _names_without_separator({"IMP_A": "", "IMP_B__C": "", "XIMP_D": ""}) == ["IMP_A"]


def test_cfg_5_an_error_has_a_space_between_the_variable_and_the_key(load_text):
    with pytest.raises(ConfigError) as caught:
        load_text("", IMP_KV__DTYP="f32")
    assert caught.value.message.startswith("IMP_KV__DTYP: kv.dtyp: unknown key; ")


@pytest.mark.parametrize("name", ["IMP_X__Y", "IMP_KV__DTYP", "IMP_KV__", "IMP___DTYPE", "IMP_kv__dtype", "IMP_____"])
def test_cfg_5_l09_an_unknown_variable_is_an_error(name: str, load_text):
    with pytest.raises(ConfigError) as caught:
        load_text("", **{name: "f32"})
    assert caught.value.message.startswith(name)


def test_cfg_3_quotes_around_a_text_are_those_of_toml(load_text):
    for text, value in (
        ('"a b.gguf"', "a b.gguf"),
        ("'a.gguf'", "a.gguf"),
        ('"a\\u00e9"', "aé"),
        ('"', '"'),
        ('a"b"', 'a"b"'),
        ('"a" b', '"a" b'),
    ):
        assert load_text("", f"model.path={text}").settings.model.path == value
        assert load_text("", IMP_MODEL__PATH=text).settings.model.path == value
    assert load_text("", 'device.tuning="t.json"').settings.device.tuning == "t.json"
    assert load_text("", 'device.cublaslt="off"').settings.device.cublaslt == "off"
    # A path of the command line is no TOML.
    assert select_model(load_text(""), '"a"').settings.model.path == '"a"'


def test_cfg_5_typed_values_need_no_quotes(load_text):
    config = load_text(
        "",
        IMP_MODEL__PATH="true",
        IMP_KV__BYTES="8 GiB",
        IMP_KV__PREFIX_CACHE="false",
        IMP_SCHEDULER__MAX_WAIT="90s",
        IMP_MODEL__OVERRIDES__EOS_TOKEN_IDS="[1, 2]",
        IMP_MODEL__OVERRIDES__GEMM='{ q4_k = "reference", "blk.*.ffn_down" = "q4_k_avx2" }',
        IMP_MODEL__OVERRIDES__ROPE_SCALING="none",
        IMP_MODELS__SECOND__PATH="/m/second.gguf",
    )
    settings = config.settings
    assert settings.model.path == "true"
    assert settings.kv.bytes == 8 * 1024**3
    assert settings.kv.prefix_cache is False
    assert settings.scheduler.max_wait.total_seconds() == 90
    assert settings.model.overrides.eos_token_ids == (1, 2)
    assert settings.model.overrides.gemm == {"q4_k": "reference", "blk.*.ffn_down": "q4_k_avx2"}
    assert settings.model.overrides.rope_scaling.type == "none"
    assert settings.models["second"].path == "/m/second.gguf"


@pytest.mark.long
def test_cfg_5_the_environment_is_read_in_one_place():
    """Each reader is listed: settings, clients, terminals, the service manager. One place sets what libraries read."""
    readers = set()
    for file in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            named = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", None)
            if named in ("environ", "environb", "getenv"):
                readers.add(file.relative_to(PACKAGE).as_posix())
    assert readers == {
        "config/sources.py",
        "client/environment.py",
        "cli/terminal.py",
        "cli/serve/notifier.py",
        "cli/preflight.py",
    }
