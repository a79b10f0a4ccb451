"""Every field of VllmEngine's GenerateRequest: each sets a field of imp.v1, or is refused, or is ignored."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from itertools import chain

from imp_service.api.facts import facts_of
from imp_service.api.options import GenerationRequest, SamplingOptions, StopOptions

# Field of SamplingParams -> the field of imp.v1's GenerateRequest of the same meaning.
PARAMS: Mapping[str, str] = {
    facts_of(field).vllm: f"{group}{field.name}"
    for group, field in chain(
        (("sampling.", field) for field in fields(SamplingOptions)),
        (("stop.", field) for field in fields(StopOptions)),
        (("", field) for field in fields(GenerationRequest)),
    )
    if facts_of(field).vllm
}
# The field of imp.v1's GenerateRequest that gets the value.
MAPPED: Mapping[str, str] = {
    "request_id": "request_id",
    "tokenized.input_ids": "token_ids.ids",
    "text": "text",
    **{f"sampling_params.{theirs}": ours for theirs, ours in PARAMS.items()},
    "sampling_params.logprobs": "output.top_logprobs",
    "sampling_params.prompt_logprobs": "output.prompt_logprobs",
    "sampling_params.skip_special_tokens": "output.special_tokens",
    "sampling_params.json_schema": "constraint.json_schema",
    "sampling_params.regex": "constraint.regex",
    "sampling_params.grammar": "constraint.gbnf",
    "sampling_params.json_object": "constraint.json_object",
    "sampling_params.choice.choices": "constraint.choices.values",
}
# Determines how the answer is sent, and has no field in imp.v1.
STREAM = "stream"

# Why a request with the field set is refused.
REFUSED: Mapping[str, str] = {
    "kv_transfer_params": "the server does not take keys and values from another server",
    "kv_transfer_params_json": "the server does not take keys and values from another server",
    "mm_inputs": "this protocol takes text; send images over imp.v1 or HTTP",
    "extra_mm_inputs": "this protocol takes text; send images over imp.v1 or HTTP",
    "media_refs": "this protocol takes text; send images over imp.v1 or HTTP",
    "data_parallel_rank": "the server has one rank, 0",
    "sampling_params.truncate_prompt_tokens": "the server does not shorten prompts",
    "sampling_params.structural_tag": "the server has no structural tags; use json_schema, regex or grammar",
}

# Why the value does not matter.
IGNORED: Mapping[str, str] = {
    "tokenized.original_text": "input_ids are the prompt",
    "sampling_params.spaces_between_special_tokens": "the answer has no text",
    "sampling_params.include_stop_str_in_output": "the answer has no text, and its token ids include the stop string's",
    "sampling_params.grammar_from_first_token": "a constraint always begins at the first token",
}

_BY_FIELD_OF_IMP = {
    **{ours: theirs for theirs, ours in MAPPED.items()},
    "token_ids": "tokenized",
    "constraint.choices": "sampling_params.choice",
    "prompt": "input",
}


def caller_path(path: str) -> str:
    """The caller's path of a field of imp.v1, such as `sampling_params.logit_bias[7]`."""
    end = len(path)
    while end > 0:
        found = _BY_FIELD_OF_IMP.get(path[:end])
        if found is not None:
            return found + path[end:]
        end = max(path.rfind(".", 0, end), path.rfind("[", 0, end))
    return path
