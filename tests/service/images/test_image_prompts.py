"""A picture in a prompt gives the same tokens however it is sent, and is counted as it is used."""

from __future__ import annotations

import json
import math
from typing import Any

import grpc
import pytest
from openai import OpenAI

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import model_pb2, model_pb2_grpc, tokenizer_pb2, tokenizer_pb2_grpc, types_pb2
from support.calls.generations import in_one, streamed
from support.media.image_files import MODES, pixels_of
from support.models.tiny_vision_models import AROUND, PLACES, vocabulary
from support.servers.http_served import HttpServed
from support.servers.served import Served
from support.servers.vision_served import (
    CELLS,
    QUESTION,
    answer_of,
    asked,
    chat_of,
    content_of,
    data_url,
    encoded,
    file_of,
    raw,
    said,
    shown,
)

GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 8, "ignore_eos": True, "return_token_ids": True}


def ids_of(text: str) -> list[int]:
    """The tokens of a prompt as the tokenizer of the model's maker has them."""
    return list(vocabulary().encode(text, add_special_tokens=False).ids)


def tiled(n_cells: int = CELLS // 5) -> str:
    """What the reference processor writes for a picture of four tiles and an overview."""
    cells = "<image>" * n_cells
    rows = [f"{AROUND}{PLACES[2 * row]}{cells}{AROUND}{PLACES[2 * row + 1]}{cells}\n" for row in range(2)]
    return f"{''.join(rows)}\n{AROUND}<global-img>{cells}{AROUND}"


def stub_of(served: Served) -> tokenizer_pb2_grpc.TokenizerServiceStub:
    return tokenizer_pb2_grpc.TokenizerServiceStub(served.channel())


def answered(http: HttpServed, content: Any, **fields: Any) -> dict[str, Any]:
    reply = http.chat(said(content), **{**GREEDY, **fields})
    assert reply.status == 200, reply.content
    found: dict[str, Any] = json.loads(reply.content)
    return found


def test_vis_6_every_form_of_a_picture_gives_the_same_tokens(http: HttpServed, served: Served) -> None:
    whole = streamed(served, asked(chat_of(encoded(file_of()), QUESTION)))
    prompt = list(whole.started.prompt.token_ids)
    text = f"<|im_start|>User:{tiled()} {QUESTION}<end_of_utterance>\nAssistant:"
    assert prompt == ids_of(text)
    for request in (chat_of(raw(), QUESTION), chat_of(encoded(file_of()), QUESTION)):
        other = answer_of(served, request)
        assert other.output == whole.output and list(other.started.prompt.token_ids) == prompt
    for url in (data_url(file_of()), {"url": data_url(file_of()), "detail": "high", "uuid": "mine"}):
        by_http = answered(http, content_of(url), logprobs=True)
        [choice] = by_http["choices"]
        assert choice["token_ids"] == whole.output.ids and by_http["prompt_token_ids"] == prompt
        logprobs = [each["logprob"] for each in choice["logprobs"]["content"]]
        assert logprobs == whole.output.logprobs
    # The negative control: another picture has the same prompt and other probabilities.
    other = answer_of(served, chat_of(raw(seed=1), QUESTION))
    assert list(other.started.prompt.token_ids) == prompt
    assert other.output.logprobs != whole.output.logprobs


def test_vis_6_a_prompt_in_parts_is_the_texts_and_what_is_written_around_a_picture(served: Served) -> None:
    parts = [types_pb2.PromptPart(text="A photo of "), types_pb2.PromptPart(image=raw())]
    cell = ids_of("<image>")
    parts += [types_pb2.PromptPart(token_ids=types_pb2.TokenIds(ids=[5, *cell])), types_pb2.PromptPart(text=" <image>")]
    found = answer_of(served, types_pb2.PromptParts(parts=parts))
    spelled = served.state.model.tokenizer.encode(" <image>", add_special_tokens=False)
    assert len(spelled) > 2
    assert list(found.started.prompt.token_ids) == [*ids_of(f"A photo of {tiled()}"), 5, *cell, *spelled]
    assert found.usage.prompt_media_tokens == CELLS


def test_med_11_cells_are_tokens_of_the_prompt(http: HttpServed, served: Served) -> None:
    found = answer_of(served, chat_of(encoded(file_of(2)), QUESTION, encoded(file_of(3))))
    usage, media = found.usage, list(found.started.media)
    assert usage.prompt_tokens == len(found.started.prompt.token_ids) and usage.prompt_media_tokens == 2 * CELLS
    assert [(span.image, span.tokens, span.positions) for span in media] == [
        (i, 16, 16) for i in (0, 1) for _ in range(5)
    ]
    (cell,) = ids_of("<image>")
    at = [i for i, token in enumerate(found.started.prompt.token_ids) if token == cell]
    assert at == [i for span in media for i in range(span.first_token, span.first_token + span.tokens)]
    again = answer_of(served, chat_of(encoded(file_of(2)), QUESTION, encoded(file_of(3))))
    assert again.usage.cached_prompt_tokens > CELLS and again.output == found.output
    by_http = answered(http, content_of({"url": data_url(file_of(2))}))["usage"]
    assert by_http["prompt_tokens_details"]["image_tokens"] == CELLS
    text = answered(http, QUESTION)["usage"]
    assert text["prompt_tokens_details"].keys() == {"cached_tokens"}


def test_vis_6_a_tool_may_return_a_picture(http: HttpServed, served: Served) -> None:
    """The template knows no tools, so that imp writes the result into a message of the user."""
    call = json.dumps([{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}])
    messages = [
        types_pb2.ChatMessage(role="user", content=QUESTION),
        types_pb2.ChatMessage(role="assistant", null_content=True, tool_calls_json=call),
        types_pb2.ChatMessage(role="tool", tool_call_id="1", parts=chat_of("Seen: ", raw()).messages[0].parts),
    ]
    two = asked(types_pb2.ChatPrompt(messages=messages))
    two.num_sequences = 2
    found = in_one(served, two)
    text = served.state.model.tokenizer.decode(list(found.started.prompt.token_ids))
    assert "<tool_response>\n Seen: " in text and text.count("</tool_response>") == 1
    assert found.usage.prompt_media_tokens == CELLS and found.outputs[0] == found.outputs[1]


def test_vis_8_counting_is_what_a_generation_uses(http: HttpServed, served: Served) -> None:
    chat = chat_of(encoded(file_of()), QUESTION)
    counted = stub_of(served).ApplyChatTemplate(tokenizer_pb2.ApplyChatTemplateRequest(chat=chat))
    used = answer_of(served, chat)
    assert list(counted.token_ids) == list(used.started.prompt.token_ids)
    assert list(counted.media) == list(used.started.media)
    assert counted.text == f"<|im_start|>User:{tiled(1)} {QUESTION}<end_of_utterance>\nAssistant:"
    body = {"messages": shown(file_of())}
    assert json.loads(http.client.post("/tokenize", body).content)["tokens"] == list(counted.token_ids)


SIZES = (
    (1, 1),
    (3, 2),
    (30, 20),
    (56, 57),
    (57, 56),
    (112, 112),
    (113, 40),
    (40, 400),
    (900, 600),
    (1, 150),
    (640, 480),
)


@pytest.mark.parametrize("size", SIZES)
def test_vis_8_an_image_of_any_size_takes_what_was_counted(
    http: HttpServed, served: Served, size: tuple[int, int]
) -> None:
    data = MODES["rgb"](pixels_of(*size))
    chat = chat_of(encoded(data), QUESTION)
    counted = stub_of(served).ApplyChatTemplate(tokenizer_pb2.ApplyChatTemplateRequest(chat=chat))
    used = answer_of(served, chat, n=1)
    n_tokens = len(counted.token_ids)
    assert used.usage.prompt_tokens == n_tokens
    assert used.usage.prompt_media_tokens == sum(span.tokens for span in counted.media)
    messages = shown(data)
    assert json.loads(http.client.post("/tokenize", {"messages": messages}).content)["count"] == n_tokens
    by_http = answered(http, content_of(data_url(data)), max_tokens=1)["usage"]
    assert by_http["prompt_tokens"] == n_tokens


def test_vis_8_counting_decodes_no_pixel(http: HttpServed) -> None:
    """The file is damaged after its header, so that a decoder refuses it."""
    data = file_of(4)
    at = data.index(b"IDAT")
    damaged = data[: at + 40] + bytes(20) + data[at + 60 :]
    counted = http.client.post("/tokenize", {"messages": shown(damaged)})
    assert counted.status == 200 and json.loads(counted.content)["count"] > CELLS
    refused = http.chat(shown(damaged), **GREEDY)
    assert refused.status == 400 and b"messages[0].content[0].image_url" in refused.content


def test_vis_6_a_session_takes_pictures(served: Served) -> None:
    whole = answer_of(served, chat_of(encoded(file_of()), QUESTION))
    step = types_pb2.SamplingOptions(temperature=0)
    stub = served.inference
    first = stub.Prefill(
        pb.PrefillRequest(chat=chat_of(encoded(file_of()), QUESTION), sampling=step, step=pb.StepOptions(scores=True))
    )
    assert first.output.token_id == whole.output.ids[0]
    assert list(first.media) == list(whole.started.media)
    nan = [i for i, value in enumerate(first.output.scores.logprobs) if math.isnan(value)]
    cells = [i for span in first.media for i in range(span.first_token, span.first_token + span.tokens)]
    assert nan == sorted({0, *cells})
    parts = types_pb2.PromptParts(parts=[types_pb2.PromptPart(text=" and "), types_pb2.PromptPart(image=raw(1))])
    request = pb.PrefillRequest(session_id=first.session_id, parts=parts, position=first.output.position)
    second = stub.Prefill(request)
    assert second.media[0].first_token > first.output.position and len(second.media) == 5
    assert stub.Prefill(request) == second
    with pytest.raises(grpc.RpcError) as caught:
        stub.TruncateSession(
            pb.TruncateSessionRequest(session_id=first.session_id, position=second.media[0].first_token + 1)
        )
    assert caught.value.code() is grpc.StatusCode.OUT_OF_RANGE
    stub.ReleaseSession(pb.ReleaseSessionRequest(session_id=first.session_id))


def test_vis_6_log_probabilities_of_cells_are_none(http: HttpServed) -> None:
    found = answered(http, content_of(data_url(file_of())), prompt_logprobs=0)
    (cell,) = ids_of("<image>")
    scores = dict(enumerate(found["prompt_logprobs"]))
    assert [i for i, each in scores.items() if each is None] == [
        i for i, token in enumerate(found["prompt_token_ids"]) if token == cell or i == 0
    ]


def test_vis_6_responses_take_pictures_in_messages_and_outputs_of_functions(http: HttpServed) -> None:
    image = {"type": "input_image", "image_url": data_url(file_of()), "detail": "auto"}
    items: list[dict[str, Any]] = [
        {"role": "user", "content": [image, {"type": "input_text", "text": QUESTION}]},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": [image]},
    ]
    reply = http.client.post("/v1/responses", {"input": items[:1], "max_output_tokens": 8, "temperature": 0})
    assert reply.status == 200, reply.content
    assert json.loads(reply.content)["usage"]["input_tokens_details"]["image_tokens"] == CELLS
    items[2]["output"][0] = {"type": "input_image", "file_id": "x"}
    refused = http.client.post("/v1/responses", {"input": items})
    assert refused.status == 400 and b"input[2].output[0].file_id" in refused.content


def test_oai_3_vis_6_openais_client_sends_a_picture(http: HttpServed, served: Served) -> None:
    with OpenAI(base_url=http.url, api_key="none", max_retries=0) as client:
        reply = client.chat.completions.create(
            model="tiny",
            messages=[
                {
                    "role": "user",
                    "content": [
                        {"type": "image_url", "image_url": {"url": data_url(file_of())}},
                        {"type": "text", "text": QUESTION},
                    ],
                }
            ],
            temperature=0,
            max_tokens=8,
            extra_body={"ignore_eos": True},
        )
    whole = answer_of(served, chat_of(encoded(file_of()), QUESTION))
    assert reply.choices[0].message.content == whole.output.text
    assert reply.usage is not None and reply.usage.prompt_tokens == whole.usage.prompt_tokens


def test_vis_6_the_model_says_which_images_it_takes(served: Served) -> None:
    info = model_pb2_grpc.ModelServiceStub(served.channel()).GetModelInfo(model_pb2.GetModelInfoRequest())
    assert list(info.media.formats) == ["PNG", "JPEG", "WebP", "GIF"]
    assert (info.media.images, info.media.request_bytes, info.media.image_tokens) == (3, 16 * 1024**2, CELLS)
