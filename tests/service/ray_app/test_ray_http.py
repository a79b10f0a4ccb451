"""OpenAI's API over Ray's HTTP proxy, with OpenAI's own client."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import openai
import pytest

from imp_service.pb import inference_pb2_grpc, model_pb2, model_pb2_grpc, types_pb2
from support.calls.generations import result_of
from support.calls.wire import ask
from support.machine.command_line import clean_environment
from support.run.patience import HANGS_AFTER
from support.servers.ray_serve import RayAddresses, serve_behind_ray

MODEL = "imp-demo"
SAID: Any = [{"role": "user", "content": "Hello"}]
N_TOKENS = 24


@pytest.fixture
def client(ray_addresses: RayAddresses) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=ray_addresses.url, api_key="none", max_retries=0, timeout=HANGS_AFTER) as it:
        yield it


def generated(addresses: RayAddresses, **fields: Any) -> str:
    """Returns the text of the same generation over gRPC."""
    request = ask("", N_TOKENS, **fields)
    request.MergeFrom(type(request)(**fields))
    with grpc.insecure_channel(addresses.grpc) as channel:
        messages = list(inference_pb2_grpc.InferenceServiceStub(channel).Generate(request, timeout=HANGS_AFTER))
    return result_of(messages).output.text


def test_gwy_7_openais_client_gets_the_tokens_of_generate(client: openai.OpenAI, ray_addresses: RayAddresses) -> None:
    chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="Hello")])
    expected = generated(ray_addresses, chat=chat)
    options: Any = {"model": MODEL, "max_tokens": N_TOKENS, "temperature": 0}
    reply = client.chat.completions.create(messages=SAID, **options)
    assert reply.choices[0].message.content == expected
    events = client.chat.completions.create(messages=SAID, stream=True, **options)
    assert "".join(event.choices[0].delta.content or "" for event in events if event.choices) == expected
    assert client.completions.create(prompt="the cat", **options).choices[0].text == generated(
        ray_addresses, text="the cat"
    )
    response = client.responses.create(model=MODEL, input="Hello", max_output_tokens=N_TOKENS, temperature=0)
    assert response.output_text == expected
    assert expected != generated(ray_addresses, text="Hello")
    assert [model.id for model in client.models.list()] == [MODEL]


def test_gwy_7_a_stream_arrives_in_pieces_while_it_is_generated(client: openai.OpenAI) -> None:
    events = client.completions.create(
        model=MODEL,
        prompt="the cat",
        max_tokens=200,
        stream=True,
        extra_body={"ignore_eos": True, "max_chunk_tokens": 1},
    )
    assert len([event for event in events if event.choices[0].text]) > 50


def test_gwy_7_errors_are_those_of_imp(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as bad:
        client.chat.completions.create(model=MODEL, messages=SAID, temperature=500)
    assert (bad.value.param, bad.value.status_code) == ("temperature", 400)
    with pytest.raises(openai.NotFoundError) as missing:
        client.chat.completions.create(model="other", messages=SAID)
    assert missing.value.code == "model_not_found"
    # Only Ray's own header.
    assert len(missing.value.response.headers.get_list("x-request-id")) == 1


def test_gwy_7_a_client_that_leaves_frees_its_sequence(client: openai.OpenAI, ray_addresses: RayAddresses) -> None:
    stream = client.completions.create(
        model=MODEL, prompt="the cat", max_tokens=480, n=8, stream=True, extra_body={"ignore_eos": True}
    )
    next(iter(stream))
    stream.close()
    at_rest: set[str] = set()
    give_up = time.monotonic() + HANGS_AFTER
    with grpc.insecure_channel(ray_addresses.grpc) as channel:
        model = model_pb2_grpc.ModelServiceStub(channel)
        while len(at_rest) < 2:
            reply, call = model.GetLoad.with_call(model_pb2.GetLoadRequest())
            instance = str(dict(call.initial_metadata())["imp-instance-id"])
            (at_rest.add if reply.load.running == 0 else at_rest.discard)(instance)
            assert time.monotonic() < give_up


def instances(client: openai.OpenAI, sessions: list[str]) -> list[str]:
    """Returns the replica that answers a request of each session."""
    found = []
    for session in sessions:
        headers = {"x-session-id": session} if session else {}
        reply = client.models.with_raw_response.list(extra_headers=headers)
        found.append(reply.headers["imp-instance-id"])
    return found


def wait_for_replicas(client: openai.OpenAI) -> None:
    """Waits until requests without a session reach both."""
    seen: set[str] = set()
    give_up = time.monotonic() + HANGS_AFTER
    while len(seen) < 2:
        seen.update(instances(client, [""]))
        assert time.monotonic() < give_up


def test_gwy_7_requests_of_a_session_reach_one_replica(ray_home: Path, tmp_path: Path) -> None:
    with (
        serve_behind_ray(tmp_path, affinity="session") as addresses,
        openai.OpenAI(base_url=addresses.url, api_key="none", max_retries=0, timeout=HANGS_AFTER) as client,
    ):
        # A new replica takes over some sessions.
        wait_for_replicas(client)
        sessions = [f"session {i}" for i in range(24)]
        homes = instances(client, sessions)
        assert len(set(homes)) == 2
        for _ in range(4):
            assert instances(client, sessions) == homes


def test_gwy_7_an_unknown_affinity_is_refused(ray_home: Path) -> None:
    # In its own process: modules that Ray imports emit warnings.
    program = "from imp_service.ray_app.application import application; application({'affinity': 'model'})"
    ran = subprocess.run(
        [sys.executable, "-c", program], env=clean_environment(ray_home), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 1
    assert "affinity: found 'model', expected one of none, session" in ran.stderr


def test_gwy_7_without_affinity_a_session_is_not_bound(client: openai.OpenAI) -> None:
    wait_for_replicas(client)
    assert len(set(instances(client, ["one"] * 100))) == 2
