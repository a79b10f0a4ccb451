"""The examples with clients of the HTTP APIs: they print gRPC's answer, and recognize failures by their code."""

from __future__ import annotations

import socket
from dataclasses import dataclass

import grpc
import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import inference_pb2_grpc, types_pb2


@dataclass(frozen=True)
class Client:
    """An example, and the words of its API."""

    name: str
    path: str = "/v1"
    cut: str = "length"
    code: str = "field_invalid"


ANTHROPIC = {"path": "", "cut": "max_tokens", "code": "invalid_request_error"}
CLIENTS = (
    *map(Client, ("python with openai", "node with openai", "node with ai")),
    *(Client(f"{language} with anthropic", **ANTHROPIC) for language in ("python", "node")),
)
QUESTION = "What is the sky?"
MAX_TOKENS = 24


@pytest.fixture
def address(server):
    """The address for clients of HTTP."""
    return f"http://{server.wait_until_ready()['http'][0]}"


@pytest.fixture(scope="module")
def answer(server):
    """The answer to the same question over gRPC."""
    request = pb.GenerateRequest(chat=types_pb2.ChatPrompt(messages=[{"role": "user", "content": QUESTION}]))
    request.sampling.temperature = 0
    request.stop.max_tokens = MAX_TOKENS
    with grpc.insecure_channel(server.wait_until_ready()["grpc"][0]) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        return stub.GenerateUnary(pb.GenerateUnaryRequest(request=request)).sequences[0].output.text


@pytest.mark.sweep(quick=lambda client: client.name.startswith("python"))
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_oai_3_msg_3_an_example_prints_the_answer(client, address, answer, run):
    result = run(client.name, "chat", address + client.path, QUESTION, str(MAX_TOKENS))
    assert (result.returncode, result.stdout) == (0, answer + "\n"), result.stderr
    assert answer and result.stderr.split("\n") == ["", f"[{client.cut}]", f"[{MAX_TOKENS} tokens]", ""]


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_oai_3_msg_3_an_example_tells_a_failure_by_its_code(client, address, run):
    # The limit of time: the AI SDK checks the one of tokens itself.
    result = run(client.name, "chat", address + client.path, QUESTION, str(MAX_TOKENS), "-1")
    assert (result.returncode, result.stdout.strip()) == (1, "")
    assert result.stderr.startswith(f"{client.code}: ")
    assert "time_limit: -1" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_oai_3_msg_3_an_example_tells_in_a_line_that_no_server_is_there(client, run):
    with socket.socket() as unheard:
        unheard.bind(("127.0.0.1", 0))  # without `listen`
        result = run(client.name, "chat", f"http://127.0.0.1:{unheard.getsockname()[1]}{client.path}", QUESTION)
    assert (result.returncode, result.stdout.strip()) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "connect" in line.lower() and not line.startswith(("None", "undefined")), line


@pytest.mark.long
@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.name)
def test_oai_3_msg_3_a_time_limit_ends_the_answer_of_an_example(client, address, answer, run):
    result = run(client.name, "chat", address + client.path, QUESTION, "16000", "0.5")
    assert result.returncode == 0, result.stderr
    assert f"[{client.cut}]" in result.stderr and "[16000 tokens]" not in result.stderr
    text = result.stdout.removesuffix("\n")
    assert text.startswith(answer[: len(text)])


@pytest.mark.parametrize("client", ["python with openai", "node with openai"])
def test_emb_9_an_example_prints_the_similarities_of_grpcs_vectors(client, address, server, run):
    texts = ("It is cold.", "The weather is freezing.", "He drove away.")
    with grpc.insecure_channel(server.wait_until_ready()["grpc"][0]) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        vectors = [list(each.values) for each in stub.Embed(pb.EmbedRequest(texts=texts)).embeddings]
    similar = [sum(a * b for a, b in zip(each, vectors[0], strict=True)) for each in vectors]
    result = run(client, "embed", f"{address}/v1", *texts)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout.splitlines() == [f"{each:.4f}  {text}" for each, text in zip(similar, texts, strict=True)]
    assert similar[0] > similar[1], "a control: other texts have other vectors"
    failed = run(client, "embed", f"{address}/v1", "a", "")
    assert failed.returncode == 1
    assert "input[1]" in failed.stderr
