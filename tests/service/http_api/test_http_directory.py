"""A server with a model directory answers over gRPC and HTTP with that directory's tokens and prompts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tokenizers import Tokenizer as Library

from imp_service.pb import inference_pb2, inference_pb2_grpc, model_pb2, model_pb2_grpc, tokenizer_pb2, types_pb2
from imp_service.pb.tokenizer_pb2_grpc import TokenizerServiceStub
from support.files.hub_directory import model_for, write_directory
from support.servers.http_served import HttpServed, serve_http
from support.servers.served_models import from_file
from support.text.hub_tokenizers import library_of, random_texts

PROMPT = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


@pytest.fixture(scope="module")
def library() -> Library:
    return library_of("byte level")


@pytest.fixture(scope="module")
def served(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    said = {"do_sample": False, "eos_token_id": library.token_to_id("<|im_end|>")}
    folder: Path = tmp_path_factory.mktemp("hub") / "Tiny-Qwen3"
    write_directory(folder, library, model_for(library), generation=said)
    with serve_http(model=from_file(folder)) as started:
        yield started


def test_hub_10_grpc_tells_the_directory_s_tokens_and_prompts(served: HttpServed, library: Library) -> None:
    channel = served.served.channel()
    tokens = TokenizerServiceStub(channel)
    texts = random_texts(40, seed=21)
    found = tokens.Tokenize(tokenizer_pb2.TokenizeRequest(texts=texts, parse_special_tokens=True)).results
    assert [list(each.token_ids) for each in found] == [library.encode(text).ids for text in texts]
    chat = types_pb2.ChatPrompt(messages=[types_pb2.ChatMessage(role="user", content="Hello")])
    rendered = tokens.ApplyChatTemplate(tokenizer_pb2.ApplyChatTemplateRequest(chat=chat))
    assert (rendered.text, list(rendered.token_ids)) == (PROMPT, library.encode(PROMPT).ids)
    info = model_pb2_grpc.ModelServiceStub(channel).GetModelInfo(model_pb2.GetModelInfoRequest())
    assert list(info.eos_token_ids) == [library.token_to_id("<|im_end|>")]


@pytest.mark.long
def test_hub_10_http_and_grpc_continue_alike(served: HttpServed, library: Library) -> None:
    stub = inference_pb2_grpc.InferenceServiceStub(served.served.channel())
    request = inference_pb2.GenerateRequest(
        token_ids=types_pb2.TokenIds(ids=library.encode(PROMPT).ids), stop=types_pb2.StopOptions(max_tokens=9)
    )
    told = stub.GenerateUnary(inference_pb2.GenerateUnaryRequest(request=request))
    reply = served.chat("Hello", max_tokens=9)
    assert reply.status == 200 and reply.json["usage"]["prompt_tokens"] == len(library.encode(PROMPT).ids)
    assert reply.json["choices"][0]["message"]["content"] == told.sequences[0].output.text
