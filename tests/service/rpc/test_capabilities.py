"""Every door tells what a model does besides generating text: it fills gaps, bounds its reasoning, decides (DEC-11)."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import imp_service
from imp_service.cli.shell import main
from imp_service.models import demo_model_path
from imp_service.pb import model_pb2, model_pb2_grpc
from support.models.worded_encoders import write_encoder
from support.models.worded_models import write_worded
from support.servers.http_served import serve_http
from support.servers.served_models import from_file

DECISIONS, INFILL, BUDGET = "decisions", "infill", "reasoning_budget"
Make = Callable[[Path], Path]


def coder(folder: Path) -> Path:
    """A model whose vocabulary has the tokens around a gap."""
    path = folder / "coder.gguf"
    write_worded(path, ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|end|>"), eos="<|end|>")
    return path


MODELS: dict[str, tuple[Make, Sequence[str], Sequence[str]]] = {
    "coder": (coder, (), (INFILL, DECISIONS)),
    "thinker": (lambda folder: demo_model_path(), ("model.overrides.dialect=hermes",), (BUDGET, DECISIONS)),
    "plain": (lambda folder: demo_model_path(), ("model.overrides.dialect=plain",), (DECISIONS,)),
    "encoder": (lambda folder: write_encoder(folder / "mean"), (), ()),
}


@pytest.mark.parametrize("name", MODELS)
def test_dec_11_every_door_tells_what_a_model_does(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make, settings, expected = MODELS[name]
    path = make(tmp_path)
    with serve_http(*settings, model=from_file(path)) as http:
        request = model_pb2.GetModelInfoRequest()
        info = model_pb2_grpc.ModelServiceStub(http.served.channel()).GetModelInfo(request)
        with imp_service.connect(http.served.server.addresses[0]) as client:
            read = client.info()
        for each in (INFILL, BUDGET, DECISIONS):
            assert getattr(info, f"supports_{each}") == getattr(read, f"supports_{each}") == (each in expected)
        assert http.client.get("/v1/models").json["data"][0]["capabilities"] == [*expected]
        assert main(["call", "info", "--target", http.served.server.addresses[0]]) == 0
        rows = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
        shown = {INFILL: rows["infill"], BUDGET: rows["budget"].partition(",")[0], DECISIONS: rows["decisions"]}
        assert {each for each, word in shown.items() if word == "yes"} == set(expected)
    given = [word for each in settings for word in ("--set", each)]
    assert main(["inspect", str(path), *given, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["capabilities"] == [*expected]
    assert main(["inspect", str(path), *given]) == 0
    line = f"also: {', '.join(expected).replace('_', ' ')}\n"
    assert (line in capsys.readouterr().out) == bool(expected)
