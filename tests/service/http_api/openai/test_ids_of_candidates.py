"""Log probabilities include the ids of tokens and candidates for callers who request ids."""

from __future__ import annotations

from typing import Any

import pytest

from support.generations import vocabulary
from support.http_served import HttpServed

STORY = "Once upon a time"


def assert_ids(entries: list[dict[str, Any]], ids: list[int]) -> None:
    """Checks that each entry and each of its candidates has the id of its bytes."""
    assert [each["token_id"] for each in entries] == ids
    for entry in entries:
        assert len(entry["top_logprobs"]) == 3
        for each in (entry, *entry["top_logprobs"]):
            is_hidden = each["token_id"] in vocabulary().special_ids
            assert bytes(each["bytes"]) == (b"" if is_hidden else vocabulary().token_bytes(each["token_id"]))


def test_ply_3_log_probabilities_of_a_chat_name_ids(http: HttpServed) -> None:
    choice = http.chat(STORY, seed=1, max_tokens=8, logprobs=True, top_logprobs=3, return_token_ids=True).choice
    assert_ids(choice["logprobs"]["content"], choice["token_ids"])


@pytest.mark.parametrize("echo", [False, True])
def test_ply_3_log_probabilities_of_a_completion_have_the_entries_of_a_chat(http: HttpServed, echo: bool) -> None:
    reply = http.complete(STORY, seed=1, max_tokens=8, logprobs=3, return_token_ids=True, echo=echo).choice
    found = reply["logprobs"]["content"]
    assert [each["token"] for each in found] == reply["logprobs"]["tokens"]
    if echo:
        n = len(reply["prompt_token_ids"])
        assert [each["token_id"] for each in found[:n]] == reply["prompt_token_ids"]
        found = found[n:]
    assert_ids(found, reply["token_ids"])
    assert [each["logprob"] for each in found] == reply["logprobs"]["token_logprobs"][-len(found) :]


def test_ply_3_a_stream_has_the_same_entries(http: HttpServed) -> None:
    fields = {"prompt": STORY, "seed": 1, "max_tokens": 8, "logprobs": 3, "return_token_ids": True}
    whole = http.client.post("/v1/completions", fields).choice["logprobs"]["content"]
    events = http.client.stream("/v1/completions", fields | {"max_chunk_tokens": 3})
    parts = [each["choices"][0]["logprobs"] for each in events.objects if each["choices"]]
    assert [entry for part in parts if part for entry in part["content"]] == whole


@pytest.mark.long
def test_ply_3_without_the_wish_nothing_is_added(http: HttpServed) -> None:
    chat = http.chat(STORY, max_tokens=2, logprobs=True, top_logprobs=3).choice["logprobs"]["content"]
    assert all("token_id" not in each for entry in chat for each in (entry, *entry["top_logprobs"]))
    assert "content" not in http.complete(STORY, max_tokens=2, logprobs=3).choice["logprobs"]
