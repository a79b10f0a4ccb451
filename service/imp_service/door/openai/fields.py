"""The fields of OpenAI's requests as data: what each is, which option of imp it sets, or why it is refused.

Names that vLLM and llama.cpp added, and that clients send through `extra_body`, are rows too. docs/openai.md is made
from these tables.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from imp_service.door.openai import kinds
from imp_service.door.openai.kinds import Kind


@dataclass(frozen=True, slots=True)
class Sets:
    """A field with an effect. `option` is the option of imp.v1 that it sets; empty if the code of the path reads it."""

    kind: Kind
    option: str
    about: str


@dataclass(frozen=True, slots=True)
class Accepted:
    """A field whose accepted values have no effect in imp. Other values are refused."""

    kind: Kind
    about: str


@dataclass(frozen=True, slots=True)
class Refused:
    """A field that imp does not support, and what to use in its place."""

    instead: str


Row = Sets | Accepted | Refused
Table = Mapping[str, Row]

SAMPLING: Table = {
    "temperature": Sets(kinds.number, "sampling.temperature", "0 is greedy; unset: the model's default"),
    "top_p": Sets(kinds.number, "sampling.top_p", "0 keeps the most likely token; unset: the model's default"),
    "top_k": Sets(kinds.whole_or_all, "sampling.top_k", "0 keeps all tokens; so does -1, as in vLLM"),
    "min_p": Sets(kinds.number, "sampling.min_p", "tokens below this share of the best one's probability are dropped"),
    "typical_p": Sets(kinds.number, "sampling.typical_p", "locally typical sampling"),
    "frequency_penalty": Sets(kinds.number, "sampling.frequency_penalty", "grows with each repetition of a token"),
    "presence_penalty": Sets(kinds.number, "sampling.presence_penalty", "for tokens that occurred at all"),
    "repetition_penalty": Sets(kinds.number, "sampling.repetition_penalty", "divides the logits of repeated tokens"),
    "logit_bias": Sets(kinds.biases, "sampling.logit_bias", "token id -> bias"),
    "seed": Sets(
        kinds.seed, "sampling.seed", "64 bits; the same seed gives the same answer under any load; -1: a random seed"
    ),
}
STOP: Table = {
    "stop": Sets(kinds.text_or_texts, "stop.strings", "a string or a list of strings that end the output"),
    "stop_token_ids": Sets(kinds.token_ids, "stop.token_ids", "token ids that end the output"),
    "min_tokens": Sets(
        kinds.whole, "stop.min_tokens", "end tokens and stop strings are ignored before this many tokens"
    ),
    "ignore_eos": Sets(kinds.flag, "stop.ignore_eos", "the end token does not end the output"),
    "include_stop_str_in_output": Sets(kinds.flag, "stop.include_match", "the matched stop string stays in the output"),
    "time_limit": Sets(kinds.number, "stop.time_limit", "seconds; then the output ends with `length`"),
}
OUTPUT: Table = {
    "n": Sets(kinds.whole, "num_sequences", "choices of each prompt"),
    "skip_special_tokens": Sets(kinds.flag, "", "false shows control tokens in the text"),
    "prompt_logprobs": Sets(kinds.number_or_flag, "", "log probabilities of the prompt, with this many candidates"),
    "return_token_ids": Sets(kinds.flag, "", "adds `token_ids`, `prompt_token_ids`, and ids to log probabilities"),
    "max_chunk_tokens": Sets(kinds.whole, "", "most tokens of one event of a stream"),
    "stream": Sets(kinds.flag, "", "sends the answer as server-sent events"),
    "stream_options": Sets(kinds.members, "", "`include_usage`, `continuous_usage_stats`"),
}
CONSTRAINTS: Table = {
    "response_format": Sets(kinds.members, "", "`text`, `json_schema`, or `json_object` with or without a `schema`"),
    "structured_outputs": Sets(kinds.members, "", "one of `json`, `regex`, `choice`, `grammar`, `json_object`"),
    "grammar": Sets(kinds.text, "", "a grammar in GBNF"),
}
SERVING: Table = {
    "model": Sets(kinds.text, "", "a served name; empty or absent: the served model"),
    "cache_salt": Sets(kinds.text, "cache.salt", "requests share cached prefixes only if their salts are equal"),
    "cache_prompt": Sets(kinds.flag, "", "false computes the whole prompt; its blocks are still cached"),
    "speculation": Sets(kinds.flag, "speculation.enabled", "false verifies no guesses; output is the same"),
    "max_draft_tokens": Sets(kinds.whole, "speculation.max_draft_tokens", "most guesses that a step verifies"),
    "sparse_prefill": Sets(
        kinds.only("dense", "auto", "sparse"), "sparse_prefill.policy", "evaluates a part of a long prompt: approximate"
    ),
    "sparse_prefill_keep": Sets(kinds.number, "sparse_prefill.keep", "the share of the prompt to evaluate"),
    "priority": Sets(kinds.whole, "priority", "as the metadata key `imp-priority`"),
}
WITHOUT_EFFECT: Table = {
    "user": Accepted(kinds.text, "not used"),
    "safety_identifier": Accepted(kinds.text, "not used"),
    "metadata": Accepted(kinds.members, "not used"),
    "prompt_cache_key": Accepted(kinds.text, "prefixes are cached by their content"),
    "prompt_cache_retention": Accepted(kinds.text, "cached prefixes stay while the cache has space"),
    "prompt_cache_options": Accepted(kinds.members, "prefixes are cached by their content"),
    "service_tier": Accepted(kinds.only("auto", "default"), "there is one tier"),
    "store": Accepted(kinds.flag, "answers are never stored"),
    "modalities": Accepted(kinds.only(["text"]), "output is text"),
    "verbosity": Accepted(kinds.only("medium"), "the model decides"),
}
UNSUPPORTED: Table = {
    "functions": Refused("use `tools`"),
    "function_call": Refused("use `tool_choice`"),
    "audio": Refused("output is text"),
    "prediction": Refused("leave it out: output is the same without it"),
    "web_search_options": Refused("imp does not search the web"),
    "moderation": Refused("imp does not moderate"),
    "suffix": Refused("put the whole prompt, with the model's fill-in-the-middle tokens, into `prompt`"),
    "guided_json": Refused("use `structured_outputs` with `json`, or `response_format`"),
    "guided_regex": Refused("use `structured_outputs` with `regex`"),
    "guided_choice": Refused("use `structured_outputs` with `choice`"),
    "guided_grammar": Refused("use `structured_outputs` with `grammar`"),
}
COMMON: Table = {**SAMPLING, **STOP, **OUTPUT, **CONSTRAINTS, **SERVING, **WITHOUT_EFFECT, **UNSUPPORTED}

CHAT: Table = {
    "messages": Sets(kinds.entries, "chat.messages", "the conversation"),
    "max_completion_tokens": Sets(kinds.whole, "stop.max_tokens", "unset: up to the context's end"),
    "max_tokens": Sets(kinds.whole, "stop.max_tokens", "the older name of `max_completion_tokens`"),
    "logprobs": Sets(kinds.flag, "output.logprobs", "log probabilities of the output"),
    "top_logprobs": Sets(kinds.whole, "output.top_logprobs", "candidates of each token; needs `logprobs`"),
    "tools": Sets(kinds.entries, "chat.tools_json", "functions that the model may call"),
    "tool_choice": Sets(kinds.anything, "tool_choice", "`none`, `auto`, `required`, one function, or `allowed_tools`"),
    "parallel_tool_calls": Sets(kinds.flag, "", "false: the output ends after its first call"),
    "reasoning_effort": Sets(kinds.text, "chat.template_kwargs_json", "a variable of the model's chat template"),
    "documents": Sets(kinds.entries, "chat.documents_json", "documents that the model's chat template shows the model"),
    "chat_template_kwargs": Sets(kinds.members, "chat.template_kwargs_json", "variables of the model's chat template"),
    "add_generation_prompt": Sets(
        kinds.flag, "chat.add_generation_prompt", "false: the prompt ends after the messages"
    ),
    "continue_final_message": Sets(kinds.flag, "chat.continue_final_message", "continues the last message"),
    **COMMON,
}
COMPLETIONS: Table = {
    "prompt": Sets(kinds.anything, "prompt", "a string, token ids, or a list of either"),
    "max_tokens": Sets(kinds.whole, "stop.max_tokens", "unset: 16, as in OpenAI's API"),
    "logprobs": Sets(kinds.number_or_flag, "output.top_logprobs", "log probabilities with this many candidates"),
    "echo": Sets(kinds.flag, "", "the prompt comes before the output; with `max_tokens: 0` a text is scored"),
    "best_of": Sets(kinds.whole, "", "only the value of `n`"),
    **COMMON,
}
RESPONSES: Table = {
    "input": Sets(
        kinds.anything, "chat.messages", "a string, or a list of messages, calls, their outputs and reasoning"
    ),
    "instructions": Sets(kinds.text, "", "the system message, before the input"),
    "max_output_tokens": Sets(kinds.whole, "stop.max_tokens", "unset: up to the context's end"),
    "include": Sets(
        kinds.texts,
        "",
        "`message.output_text.logprobs`; `reasoning.encrypted_content` adds nothing, since reasoning is text",
    ),
    "top_logprobs": Sets(kinds.whole, "output.top_logprobs", "log probabilities with this many candidates"),
    "text": Sets(kinds.members, "", "`format`: `text`, `json_object` or `json_schema`"),
    "tools": Sets(kinds.entries, "chat.tools_json", "functions that the model may call"),
    "tool_choice": CHAT["tool_choice"],
    "parallel_tool_calls": CHAT["parallel_tool_calls"],
    "reasoning": Sets(kinds.members, "", "`effort` is a variable of the model's chat template"),
    "chat_template_kwargs": CHAT["chat_template_kwargs"],
    **SAMPLING,
    **STOP,
    **{name: OUTPUT[name] for name in ("skip_special_tokens", "max_chunk_tokens", "stream")},
    "stream_options": Accepted(kinds.only({}, {"include_obfuscation": False}), "the last event always has the usage"),
    "structured_outputs": CONSTRAINTS["structured_outputs"],
    "grammar": CONSTRAINTS["grammar"],
    **SERVING,
    **WITHOUT_EFFECT,
    "metadata": Sets(kinds.labels, "", "returned with the response"),
    "background": Accepted(kinds.only(False), "a response ends with its call"),
    "truncation": Accepted(kinds.only("disabled"), "input beyond the context is refused"),
    "access_programs": Refused("leave it out"),
    "background_options": Refused("leave it out: a response ends with its call"),
    "context_management": Refused("send a shorter `input`"),
    "conversation": Refused("responses are not stored: send the items of the conversation as `input`"),
    "image": Refused("input is text"),
    "max_tool_calls": Refused("imp runs no tools; use `parallel_tool_calls`"),
    "moderation": UNSUPPORTED["moderation"],
    "previous_response_id": Refused("responses are not stored: send the earlier items, then the new ones, as `input`"),
    "prompt": Refused("templates are not stored: send `instructions` and `input`"),
    "response_format": Refused("use `text` with `format`"),
    "reasoning_effort": Refused("use `reasoning` with `effort`"),
    "messages": Refused("use `input`"),
    "max_tokens": Refused("use `max_output_tokens`"),
    "max_completion_tokens": Refused("use `max_output_tokens`"),
    "n": Refused("send the request again with another `seed`"),
}
TOKENIZE: Table = {
    "model": SERVING["model"],
    "prompt": Sets(kinds.text, "", "a string"),
    "messages": CHAT["messages"],
    "tools": CHAT["tools"],
    "documents": CHAT["documents"],
    "chat_template_kwargs": CHAT["chat_template_kwargs"],
    "add_generation_prompt": CHAT["add_generation_prompt"],
    "continue_final_message": CHAT["continue_final_message"],
    "add_special_tokens": Sets(kinds.flag, "", "of a text; default true"),
    "return_token_strs": Sets(kinds.flag, "", "adds the text of each token"),
}
DETOKENIZE: Table = {"model": SERVING["model"], "tokens": Sets(kinds.token_ids, "", "token ids")}
