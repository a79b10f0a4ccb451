"""The parameters: the values in force while they are empty, and the drawer of a narrow window."""

from __future__ import annotations

from typing import Any

import pytest
from playwright.sync_api import expect

from imp_service.pb import model_pb2, model_pb2_grpc
from imp_service.tables import SAMPLER_FIELDS
from support.servers.http_served import HttpServed, serve_http

SETTINGS = ("model.overrides.default_sampling.temperature=0.3", "limits.max_tokens=77")
NARROW = [390, 768]
ORIGINS = {
    "imp.conf": "From the server’s settings.",
    "model": "From the model’s file.",
    "imp": "From imp: the model’s file has none.",
}


def test_ply_9_the_list_of_models_has_the_defaults_that_getmodelinfo_has() -> None:
    with serve_http(*SETTINGS) as http:
        (entry,) = http.client.get("/v1/models").json["data"]
        stub = model_pb2_grpc.ModelServiceStub(http.served.channel())
        info = stub.GetModelInfo(model_pb2.GetModelInfoRequest())
        wanted = {name: getattr(info.default_sampling, name) for name in SAMPLER_FIELDS}
        assert entry["default_sampling"] == pytest.approx(wanted)
        assert entry["default_sampling"]["temperature"] == 0.3
        assert entry["default_sampling_origins"] == dict(info.default_sampling_origins)
        assert entry["max_output_tokens"] == 77


@pytest.mark.long
@pytest.mark.parametrize("settings", [(), SETTINGS])
def test_ply_9_empty_parameters_show_the_values_in_force_and_their_origin(
    visit: Any, settings: tuple[str, ...]
) -> None:
    with serve_http(*settings) as http, visit(http) as it:
        (entry,) = http.client.get("/v1/models").json["data"]
        for name in ("temperature", "top_p", "top_k", "min_p"):
            field = it.page.locator(f"#{name}")
            expect(field).to_have_attribute("placeholder", f"{entry['default_sampling'][name]:g}")
            assert field.input_value() == ""
            origin = it.page.locator(f"#{name}-origin")
            expect(origin).to_have_text(ORIGINS[entry["default_sampling_origins"][name]])
        most = entry["max_output_tokens"] or entry["max_model_len"]
        expect(it.page.locator("#max_tokens")).to_have_attribute("placeholder", str(most))
        assert (entry["max_output_tokens"] == 77) == bool(settings)


@pytest.mark.few(1)
@pytest.mark.parametrize("width", NARROW)
def test_ply_9_in_a_narrow_window_the_parameters_are_a_drawer(http: HttpServed, visit: Any, width: int) -> None:
    with visit(http, width=width) as it:
        it.ask("Who are you?")
        drawer, opener = it.page.get_by_role("dialog", name="Parameters"), it.page.locator("#tune")
        outside = (5, 450)
        closers = (
            lambda: it.page.keyboard.press("Escape"),
            lambda: it.button("Close").click(),
            lambda: it.page.mouse.click(*outside),
        )
        expect(it.page.locator("#temperature")).to_be_hidden()
        for close in closers:
            opener.click()
            expect(drawer).to_be_visible()
            assert drawer.evaluate("node => node.contains(document.activeElement)")
            it.page.locator("#temperature").fill("0.5")
            close()
            expect(drawer).to_have_count(0)
            assert opener.evaluate("node => node === document.activeElement")
        expect(opener).to_have_attribute("aria-label", "Parameters, 1 changed")
        it.ask("Name three fruits.")
        assert it.bodies[-1]["temperature"] == 0.5
        assert it.console == []


@pytest.mark.long
def test_ply_9_a_wrong_parameter_opens_the_drawer(http: HttpServed, visit: Any) -> None:
    with visit(http, width=390) as it:
        it.set(response_format="{")
        it.say("Hi")
        expect(it.page.locator("#response_format")).to_be_visible()
        assert it.page.locator("#response_format").evaluate("node => node === document.activeElement")
        assert it.page.locator(".turn").count() == 0


@pytest.mark.long
def test_ply_9_a_window_that_grows_has_the_parameters_beside_the_conversation(http: HttpServed, visit: Any) -> None:
    with visit(http, width=768) as it:
        it.page.locator("#tune").click()
        it.page.locator("#temperature").fill("0.5")
        it.page.set_viewport_size({"width": 1400, "height": 900})
        expect(it.page.get_by_role("dialog")).to_have_count(0)
        expect(it.page.locator("aside #temperature")).to_be_visible()
        assert it.page.locator("#temperature").input_value() == "0.5"
        expect(it.page.locator("#tune")).to_be_hidden()
