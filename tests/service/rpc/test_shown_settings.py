"""GetServerInfo, `imp config show` and `imp inspect` show the same settings."""

from __future__ import annotations

import json
from typing import Any

import pytest
from google.protobuf.json_format import MessageToDict

from imp_service.cli.shell import main
from imp_service.config import load as load_config
from imp_service.models import demo_model_path
from imp_service.pb import model_pb2, model_pb2_grpc
from support.served import Served, serve

OVERRIDES = {"rope_theta": "20000.0", "max_context": "96", "kv_dtype": "f32"}
SECRET = "canary-5f1c"


def told_by_server(served: Served) -> dict[str, Any]:
    stub = model_pb2_grpc.ModelServiceStub(served.channel())
    told: dict[str, Any] = MessageToDict(stub.GetServerInfo(model_pb2.GetServerInfoRequest()).config)
    return told


def printed(capfd: pytest.CaptureFixture[str], *words: str) -> str:
    capfd.readouterr()
    assert main(list(words)) == 0
    return capfd.readouterr().out


def test_mod_10_three_overrides_are_the_same_wherever_they_are_shown(capfd: pytest.CaptureFixture[str]) -> None:
    settings = [f"model.overrides.{name}={value}" for name, value in OVERRIDES.items()]
    given = [word for setting in settings for word in ("--set", setting)]
    shown = dict(line.split("  # ") for line in printed(capfd, "config", "show", "--origin", *given).splitlines())
    origins = {line.rstrip(): origin.strip() for line, origin in shown.items()}
    inspected = json.loads(printed(capfd, "inspect", str(demo_model_path()), "--json", *given))["facts"]
    facts = {fact["name"]: fact for fact in inspected}
    with serve(*settings) as served:
        told = told_by_server(served)
        loaded = {fact["name"]: fact for fact in served.host.model.core.facts}
    for name, value in OVERRIDES.items():
        quoted = f'"{value}"' if name == "kv_dtype" else value
        assert origins[f"model.overrides.{name} = {quoted}"] == "--set"
        assert str(told[f"model.overrides.{name}"]).removesuffix(".0") == value.removesuffix(".0")
        assert (facts[name]["value"], facts[name]["origin"]) == (value.removesuffix(".0"), "override")
        assert facts[name] == loaded[name]
    plain = [fact for name, fact in facts.items() if name not in OVERRIDES]
    assert {fact["origin"] for fact in plain} == {"checkpoint", "architecture"}


@pytest.mark.long
def test_cfg_6_the_server_tells_what_config_show_prints_less_secrets(capfd: pytest.CaptureFixture[str]) -> None:
    """The settings that are chosen for the machine are not compared."""
    given = [f"tracing.endpoint=http://me:{SECRET}@127.0.0.1:4317", "kv.block_tokens=32"]
    words = [word for setting in given for word in ("--set", setting)]
    out = printed(capfd, "config", "show", "--json", *words)
    printed_settings = json.loads(out)
    with serve() as served:
        before, served.host.config = served.host.config, load_config(None, given)  # this config exports nothing
        told = told_by_server(served)
        served.host.config = before
        assert SECRET not in "\n".join(served.log_lines())
    # `imp config show` prints the user's own file, secrets included.
    assert SECRET in printed_settings["tracing.endpoint"]
    assert SECRET not in json.dumps(told)
    assert told["tracing.endpoint"] == "http://127.0.0.1:4317"
    assert told.keys() == printed_settings.keys()
    differing = {name for name, value in printed_settings.items() if told[name] != value}
    assert {name for name in differing if not name.startswith("device.")} == {"tracing.endpoint"}
