"""A model is known by the name of its file too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from imp_service.models import demo_model_path
from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.servers.http_served import DEMO_MODEL, HttpServed, serve_http
from support.servers.served_models import from_file

FILE = "My Model-Q4_K_M"


@pytest.fixture(scope="module")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    path = tmp_path_factory.mktemp("models") / f"{FILE}.gguf"
    path.write_bytes(demo_model_path().read_bytes())
    with serve_http(model=from_file(path)) as it:
        yield it


def names_of(http: HttpServed) -> list[str]:
    return [entry["id"] for entry in http.client.get("/v1/models").json["data"]]


def test_oai_17_the_name_of_the_file_is_listed_and_accepted(http: HttpServed) -> None:
    shown = FILE.replace(" ", "-")
    assert names_of(http) == [DEMO_MODEL, shown]
    for name in (DEMO_MODEL, FILE, shown):
        reply = http.chat("Hi", model=name, max_tokens=1)
        assert (reply.status, reply.json["model"]) == (200, DEMO_MODEL)
    assert http.client.get(f"/v1/models/{shown}").json["id"] == shown
    assert http.chat("Hi", model="other").refusal == (404, "model_not_found", None)
    request = pb.GenerateRequest(text="Hi", model=FILE, stop=types_pb2.StopOptions(max_tokens=1))
    assert list(http.served.inference.Generate(request))


def test_oai_17_a_name_of_the_settings_is_the_only_one(tmp_path: Path) -> None:
    path = tmp_path / "other.gguf"
    path.write_bytes(demo_model_path().read_bytes())
    with serve_http("model.name=served", 'model.aliases=["gpt"]', model=from_file(path)) as named:
        assert names_of(named) == ["served", "gpt"]
    same = tmp_path / f"{DEMO_MODEL}.gguf"
    same.write_bytes(demo_model_path().read_bytes())
    with serve_http(model=from_file(same)) as once:
        assert names_of(once) == [DEMO_MODEL]


def test_oai_17_the_built_in_model_has_one_name() -> None:
    with serve_http() as http:
        assert names_of(http) == [DEMO_MODEL]
