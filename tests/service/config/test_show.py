"""How the effective values are shown."""

import json
import tomllib

from imp_service.config import Settings, read_settings
from imp_service.config.machine import resolve_threads
from imp_service.config.placement import resolve_cpus, resolve_memory
from imp_service.config.render import as_json, as_text
from imp_service.config.settings import TABLE
from imp_service.config.table import keys_of
from imp_service.config.toml import write_path

CANARY = "canary-7f3a"


def test_cfg_6_every_key_is_shown_with_its_value_and_source(load_text):
    config = load_text(
        '[kv]\nblock_tokens = 32\n[models."qwen2.5"]\npath = "q.gguf"\n[model.overrides.gemm]\n"blk.*" = "reference"\n',
        "limits.max_tokens=2K",
        IMP_SCHEDULER__MAX_WAIT="5ms",
    )
    shown = json.loads(as_json(config, with_origin=True))
    assert shown["kv.block_tokens"] == {"value": 32, "origin": "imp.conf:2"}
    assert shown['models."qwen2.5".path'] == {"value": "q.gguf", "origin": "imp.conf:4"}
    assert shown['model.overrides.gemm."blk.*"'] == {"value": "reference", "origin": "imp.conf:6"}
    assert shown["limits.max_tokens"] == {"value": 2048, "origin": "--set"}
    assert shown["scheduler.max_wait"] == {"value": "5ms", "origin": "IMP_SCHEDULER__MAX_WAIT"}
    assert shown["kv.prefix_cache"] == {"value": True, "origin": "default"}
    assert shown["model.path"] == {"value": None, "origin": "default"}
    fixed = {write_path(path) for path, _ in keys_of(TABLE) if "NAME" not in path}
    assert fixed <= set(shown)


def test_cfg_6_text_and_json_agree(load_text):
    config = load_text('[scheduler]\nmax_running = 8\n[text]\ncache_bytes = "1.5 MiB"\n')
    from_text = tomllib.loads(as_text(config))
    shown = json.loads(as_json(config))
    assert as_json(config).startswith('{\n  "')
    for entry in config.entries():
        node: object = from_text
        for name in entry.path:
            node = node.get(name) if isinstance(node, dict) else None
        assert node == shown[entry.name]


def test_cfg_6_the_text_that_is_shown_gives_the_same_settings(load_text):
    config = load_text('[scheduler]\nmax_wait = "2h"\n[model]\npath = "a \\"b\\" ü.gguf"\n')
    assert load_text(as_text(config, with_origin=True)).settings == config.settings


def test_cfg_6_nothing_but_keys_of_the_table_is_shown(machine, load_text):
    """The output contains neither the content of a file that a key names, nor variables that are not imp's."""
    (machine / "chat.jinja").write_text(CANARY)
    config = load_text(
        '[model.overrides]\nchat_template = "chat.jinja"\n', IMP_TOKEN=CANARY, HF_TOKEN=CANARY, PASSWORD=CANARY
    )
    for shown in (as_text(config, with_origin=True), as_json(config, with_origin=True)):
        assert "chat.jinja" in shown
        assert CANARY not in shown


def test_cfg_7_settings_are_frozen(load_text):
    from dataclasses import FrozenInstanceError

    import pytest

    settings = load_text('[models.a]\npath = "a.gguf"\n').settings
    for change in ("settings.kv = None", "settings.kv.dtype = 'f32'", "settings.models['b'] = 1"):
        with pytest.raises((FrozenInstanceError, TypeError)):
            exec(change, {"settings": settings})


def test_cfg_7_two_settings_in_one_process_are_independent(load_text):
    one = load_text("", "model.overrides.rope_theta=5e5", 'model.overrides.gemm."q4_k"=reference')
    other = load_text("", "model.overrides.kv_dtype=f32")
    assert one.settings.model.overrides.rope_theta == 5e5
    assert one.settings.model.overrides.kv_dtype is None
    assert other.settings.model.overrides.rope_theta is None
    assert other.settings.model.overrides.gemm == {}
    assert Settings().model.overrides.gemm == {}


def test_cfg_8_auto_is_resolved_once_and_shown_with_its_reason(machine):
    import pytest

    config = read_settings(variables={}, root=machine)
    decided = resolve_threads(config, machine)
    (entry,) = [entry for entry in decided.entries() if entry.name == "device.threads"]
    assert entry.value == decided.settings.device.threads
    assert isinstance(entry.value, int)
    assert str(entry.origin).startswith("auto: affinity: ")
    assert resolve_threads(decided, machine) is decided
    with pytest.raises(ValueError, match=r"device\.threads is not auto"):
        decided.resolve(("device", "threads"), 3, "again")


def test_cfg_8_a_given_value_is_not_resolved_again(load_text, machine):
    config = load_text("device.threads = 3")
    assert resolve_threads(config, machine).settings.device.threads == 3


def test_cfg_8_no_auto_is_left_when_each_is_resolved(machine):
    config = resolve_threads(read_settings(variables={}, root=machine), machine)
    config = config.resolve(("device", "kind"), "cpu", "the only one there is")
    config, _ = resolve_memory(resolve_cpus(config, machine), lambda nodes: "", machine)
    config = config.resolve(("device", "cublaslt"), "off", "device.kind is cpu")
    config = config.resolve(("device", "isa"), "avx2", "best of this CPU")
    config = config.resolve(("kv", "bytes"), 64 * 1024**2, "half of what weights leave")
    config = config.resolve(("kv", "state_snapshot_bytes"), 0, "the model has no recurrent state")
    config = config.resolve(("kv", "dtype"), "bf16", "the weights")
    config = config.resolve(("media", "cache_bytes"), 0, "the model reads no images")
    assert '"auto"' not in as_text(config)
    assert "auto" not in json.loads(as_json(config)).values()
    assert config.settings.kv.bytes == 64 * 1024**2
