"""The examples with clients of OpenAI's API: they print gRPC's answer, and recognize failures by their code."""

from __future__ import annotations

import socket

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, types_pb2

CLIENTS = ("python with openai", "node with openai", "node with ai")
QUESTION = "What is the sky?"
MAX_TOKENS = 24


@pytest.fixture
def base_url(server):
    """The base URL for OpenAI's clients."""
    return f"http://{server.wait_until_ready()['http'][0]}/v1"


@pytest.fixture(scope="module")
def answer(server):
    """The answer to the same question over gRPC."""
    request = pb.GenerateRequest(chat=types_pb2.ChatPrompt(messages=[{"role": "user", "content": QUESTION}]))
    request.sampling.temperature = 0
    request.stop.max_tokens = MAX_TOKENS
    with grpc.insecure_channel(server.wait_until_ready()["grpc"][0]) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        return stub.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences[0].output.text


@pytest.mark.sweep(quick=lambda client: client == "python with openai")
@pytest.mark.parametrize("client", CLIENTS)
def test_oai_3_an_example_prints_the_answer(client, base_url, answer, run):
    result = run(client, "chat", base_url, QUESTION, str(MAX_TOKENS))
    assert (result.returncode, result.stdout) == (0, answer + "\n"), result.stderr
    assert answer and result.stderr.split("\n") == ["", "[length]", f"[{MAX_TOKENS} tokens]", ""]


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS)
def test_oai_3_an_example_tells_a_failure_by_its_code(client, base_url, run):
    # The limit of time: the AI SDK checks the one of tokens itself.
    result = run(client, "chat", base_url, QUESTION, str(MAX_TOKENS), "-1")
    assert (result.returncode, result.stdout.strip()) == (1, "")
    assert result.stderr.startswith("field_invalid: ")
    assert "time_limit: -1" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS)
def test_oai_3_an_example_tells_in_a_line_that_no_server_is_there(client, run):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # without `listen`
        result = run(client, "chat", f"http://127.0.0.1:{unheard.getsockname()[1]}/v1", QUESTION)
    assert (result.returncode, result.stdout.strip()) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "connect" in line.lower() and not line.startswith(("None", "undefined")), line


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS)
def test_oai_3_a_time_limit_ends_the_answer_of_an_example(client, base_url, answer, run):
    result = run(client, "chat", base_url, QUESTION, "16000", "0.5")
    assert result.returncode == 0, result.stderr
    assert "[length]" in result.stderr and "[16000 tokens]" not in result.stderr
    text = result.stdout.removesuffix("\n")
    assert text.startswith(answer[: len(text)])
