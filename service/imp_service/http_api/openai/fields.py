"""The fields of OpenAI's requests as data.

Names of other servers (vLLM, llama-server, Ollama, OpenRouter), which clients send because their users chose another
server before, are rows too. Such a name does what it means there. If it changes no answer it is ignored, and the reply
says so. If it would change the answer and imp cannot do it, it is refused. docs/openai.md is made from these tables.
"""

from __future__ import annotations

from imp_service.http_api.requests import values
from imp_service.http_api.requests.option_rows import (
    CHOICES,
    OF_MODEL,
    OWN_CONSTRAINTS,
    REQUEST,
    RESUME,
    SAMPLING,
    SERVING,
    STOP,
    STREAM,
)
from imp_service.http_api.requests.rows import Accepted, Ignored, Means, Refused, Sets, Table

OUTPUT: Table = {
    CHOICES: REQUEST[CHOICES],
    "skip_special_tokens": Sets(values.flag, "", "false shows control tokens in the text"),
    "prompt_logprobs": Sets(values.number_or_flag, "", "log probabilities of the prompt, with this many candidates"),
    "return_token_ids": Sets(values.flag, "", "adds `token_ids`, `prompt_token_ids`, and ids to log probabilities"),
    **STREAM,
    **RESUME,
    "stream_options": Sets(values.members, "", "`include_usage`, `continuous_usage_stats`"),
}
CONSTRAINTS: Table = {
    "response_format": Sets(values.members, "", "`text`, `json_schema`, or `json_object` with or without a `schema`"),
    **OWN_CONSTRAINTS,
}
WITHOUT_EFFECT: Table = {
    "user": Accepted(values.text, "not used"),
    "safety_identifier": Accepted(values.text, "not used"),
    "metadata": Accepted(values.members, "not used"),
    "prompt_cache_key": Accepted(values.text, "prefixes are cached by their content"),
    "prompt_cache_retention": Accepted(values.text, "cached prefixes stay while the cache has space"),
    "prompt_cache_options": Accepted(values.members, "prefixes are cached by their content"),
    "service_tier": Accepted(
        values.only_or_ignored(("auto", "default"), ("flex", "priority", "scale")), "there is one tier"
    ),
    "store": Accepted(values.flag, "answers are never stored"),
    "modalities": Accepted(values.only(["text"]), "output is text"),
    "prediction": Ignored("output is the same without it"),
    "truncation": Accepted(values.only_or_ignored(("disabled",), ("auto",)), "input beyond the context is refused"),
    "verbosity": Accepted(values.only_or_ignored(("medium",), ("low", "high")), "the model decides"),
}
UNSUPPORTED: Table = {
    "functions": Refused("use `tools`"),
    "function_call": Refused("use `tool_choice`"),
    "audio": Refused("output is text"),
    "web_search_options": Refused("imp does not search the web"),
    "moderation": Refused("imp does not moderate"),
    "suffix": Refused("use `/v1/completions`"),
    "guided_json": Refused("use `structured_outputs` with `json`, or `response_format`"),
    "guided_regex": Refused("use `structured_outputs` with `regex`"),
    "guided_choice": Refused("use `structured_outputs` with `choice`"),
    "guided_grammar": Refused("use `structured_outputs` with `grammar`"),
}
# Names of other servers, on every path.
OTHER_SERVERS: Table = {
    "repeat_penalty": Means(values.number, "repetition_penalty"),
    "typ_p": Means(values.number, "typical_p"),
    "do_sample": Means(values.greedy_if_false, "temperature"),
    "t_max_predict_ms": Means(values.milliseconds, "time_limit"),
    "format": Sets(values.anything, "", "Ollama's: `json`, or a JSON Schema"),
    "mirostat": Accepted(values.only(0), "imp has no such sampler: use `min_p`"),
    "tfs_z": Accepted(values.only(1, 1.0), "imp has no such sampler: use `min_p`"),
    "top_a": Accepted(values.only(0, 0.0), "imp has no such sampler: use `min_p`"),
    "top_n_sigma": Accepted(values.only(-1, -1.0, 0, 0.0), "imp has no such sampler: use `min_p`"),
    "xtc_probability": Accepted(values.only(0, 0.0), "imp has no such sampler"),
    "dynatemp_range": Accepted(values.only(0, 0.0), "imp has no such sampler: use `temperature`"),
    "use_beam_search": Accepted(values.only(False), "imp samples"),
    "num_beams": Accepted(values.only(1), "imp samples"),
    "include_reasoning": Accepted(
        values.only_or_ignored((True,), (False,)), "reasoning is never in the text; chats have `reasoning_content`"
    ),
    "separate_reasoning": Accepted(
        values.only_or_ignored((True,), (False,)), "reasoning is never in the text; chats have `reasoning_content`"
    ),
    "reasoning_format": Accepted(
        values.only("auto", "deepseek", "parsed"), "reasoning is never in the text; chats have `reasoning_content`"
    ),
    "mirostat_tau": Ignored("only `mirostat` uses it"),
    "mirostat_eta": Ignored("only `mirostat` uses it"),
    "xtc_threshold": Ignored("only `xtc_probability` uses it"),
    "dynatemp_exponent": Ignored("only `dynatemp_range` uses it"),
    "length_penalty": Ignored("only beam search uses it"),
    "early_stopping": Ignored("only beam search uses it"),
    "num_ctx": Ignored("`limits.max_context` of the server's settings is the context"),
    **dict.fromkeys(
        ("num_batch", "num_thread", "num_gpu", "main_gpu", "low_vram", "numa", "use_mmap", "use_mlock"),
        Ignored("the server's settings decide it"),
    ),
    "num_keep": Ignored("input beyond the context is refused"),
    "n_keep": Ignored("input beyond the context is refused"),
    "transforms": Ignored("input beyond the context is refused"),
    "keep_alive": Ignored("the model stays loaded"),
    "id_slot": Ignored("imp has no slots: prefixes are cached by their content"),
    "cache": Ignored("it is for a gateway's cache"),
    "provider": Ignored("it is for OpenRouter's choice of a server"),
    "route": Ignored("it is for OpenRouter's choice of a server"),
    "usage": Ignored("an answer has it; in a stream `stream_options` asks for it"),
    "timings_per_token": Ignored("`imp_` metrics have the timings"),
    "return_progress": Ignored("a stream begins with the output"),
    "backend_sampling": Ignored("imp chooses where it samples"),
    "client_metadata": Ignored("not used"),
    "samplers": Refused("imp applies its samplers in one order; leave it out"),
    "chat_template": Refused("`model.overrides.chat_template` of the server's settings replaces the template"),
    "options": Refused("put its members into the request itself"),
}
COMMON: Table = {
    **SAMPLING,
    **STOP,
    **OUTPUT,
    **CONSTRAINTS,
    **SERVING,
    **WITHOUT_EFFECT,
    **UNSUPPORTED,
    **OTHER_SERVERS,
}


def names_of_limit(field: str) -> Table:
    """Other servers' names of the most tokens of an output."""
    return {
        "n_predict": Means(values.limit, field),
        "num_predict": Means(values.limit, field),
        "max_new_tokens": Means(values.whole, field),
    }


# Whether the model is to reason, in the words of Ollama, Qwen, and Anthropic.
THINKING: Table = {
    "think": Sets(
        values.flag_or_text, "", "whether the model reasons, or how much: variables of the model's chat template"
    ),
    "enable_thinking": Sets(values.flag, "", "whether the model reasons: variables of the model's chat template"),
    "thinking": Sets(
        values.members,
        "",
        '`{"type": "enabled"}` or `disabled`: as `enable_thinking`; `budget_tokens` as `thinking_token_budget`',
    ),
}

CHAT: Table = {
    "messages": Sets(values.entries, "chat.messages", "the conversation"),
    "max_completion_tokens": Sets(values.whole, "stop.max_tokens", "unset or -1: up to the context's end"),
    "max_tokens": Sets(values.whole, "stop.max_tokens", "the older name of `max_completion_tokens`"),
    "logprobs": Sets(values.flag, "output.logprobs", "log probabilities of the output"),
    "top_logprobs": Sets(values.whole, "output.top_logprobs", "candidates of each token; needs `logprobs`"),
    "tools": Sets(values.entries, "chat.tools_json", "functions that the model may call"),
    "tool_choice": Sets(values.anything, "tool_choice", "`none`, `auto`, `required`, one function, or `allowed_tools`"),
    "parallel_tool_calls": Sets(values.flag, "", "false: the output ends after its first call"),
    "reasoning_effort": Sets(
        values.text, "chat.template_kwargs_json", "a variable of the model's chat template; `none`: no reasoning"
    ),
    **THINKING,
    "reasoning": Sets(
        values.members,
        "",
        "OpenRouter's: `effort` as `reasoning_effort`, `enabled` as `think`, `max_tokens` as `thinking_token_budget`",
    ),
    "documents": Sets(
        values.entries, "chat.documents_json", "documents that the model's chat template shows the model"
    ),
    **OF_MODEL,
    "add_generation_prompt": Sets(
        values.flag, "chat.add_generation_prompt", "false: the prompt ends after the messages"
    ),
    "continue_final_message": Sets(values.flag, "chat.continue_final_message", "continues the last message"),
    "best_of": Sets(values.whole, "", "only the value of `n`"),
    **COMMON,
    **names_of_limit("max_tokens"),
    "echo": Accepted(values.only(False), "`/v1/completions` can repeat its prompt"),
    "raw": Accepted(values.only(False), "`/v1/completions` continues a text"),
    "system": Refused("send a message of role `system`"),
    **dict.fromkeys(("prompt", "input"), Refused("use `messages`, or `/v1/completions` for a text")),
}
COMPLETIONS: Table = {
    "prompt": Sets(values.anything, "prompt", "a string, token ids, or a list of either"),
    "max_tokens": Sets(values.whole, "stop.max_tokens", "unset: 16, as in OpenAI's API; -1: no limit"),
    "logprobs": Sets(values.number_or_flag, "output.top_logprobs", "log probabilities with this many candidates"),
    "echo": Sets(values.flag, "", "the prompt comes before the output; with `max_tokens: 0` a text is scored"),
    "best_of": Sets(values.whole, "", "only the value of `n`"),
    **COMMON,
    "suffix": Sets(values.text, "", "the text after the gap: the output fills it; for a `prompt` that is text"),
    **names_of_limit("max_tokens"),
    **dict.fromkeys(THINKING, Ignored("a text has no chat template")),
    "raw": Accepted(values.only(True), "a text has no chat template: `/v1/chat/completions` uses it"),
    "system": Refused("use `/v1/chat/completions` with a message of role `system`"),
    "messages": Refused("use `/v1/chat/completions`"),
    "input": Refused("use `prompt`"),
}
# Its samplers are those of llama-server's `infill`, and its time limit for the prompt has no effect there either.
INFILL: Table = {
    "input_prefix": Sets(values.text, "infill.prefix", "the text before the gap"),
    "input_suffix": Sets(values.text, "infill.suffix", "the text after the gap"),
    "prompt": Sets(values.text, "infill.middle", "the beginning of the text in the gap"),
    "input_extra": Sets(values.entries, "infill.files", "further files, which the model sees first"),
    "max_tokens": Sets(values.limit, "stop.max_tokens", "unset or -1: up to the context's end"),
    "response_fields": Sets(values.texts, "", "the fields of the answer; `timings/prompt_n` is a member of one"),
    **{name: OUTPUT[name] for name in ("return_token_ids", "stream", "max_chunk_tokens")},
    "return_tokens": Means(values.flag, "return_token_ids"),
    **SAMPLING,
    **STOP,
    **CONSTRAINTS,
    **SERVING,
    **OTHER_SERVERS,
    **names_of_limit("max_tokens"),
    "n_probs": Accepted(values.only(0), "`/v1/completions` has `logprobs`"),
    "n_cmpl": Accepted(values.only(1), "`/v1/completions` has `n`"),
    "samplers": Ignored("imp applies its samplers in one order"),
    "n_indent": Ignored("the model decides how far it indents"),
    "t_max_prompt_ms": Ignored("`limits.request_time` bounds a request"),
}
RESPONSES: Table = {
    "input": Sets(
        values.anything, "chat.messages", "a string, or a list of messages, calls, their outputs and reasoning"
    ),
    "instructions": Sets(values.text, "", "the system message, before the input"),
    "max_output_tokens": Sets(values.whole, "stop.max_tokens", "unset or -1: up to the context's end"),
    "include": Sets(
        values.texts,
        "",
        "`message.output_text.logprobs`; `reasoning.encrypted_content` adds nothing, since reasoning is text",
    ),
    "top_logprobs": Sets(values.whole, "output.top_logprobs", "log probabilities with this many candidates"),
    "text": Sets(values.members, "", "`format`: `text`, `json_object` or `json_schema`"),
    "tools": Sets(values.entries, "chat.tools_json", "functions that the model may call"),
    "tool_choice": CHAT["tool_choice"],
    "parallel_tool_calls": CHAT["parallel_tool_calls"],
    "reasoning": Sets(
        values.members,
        "",
        "`effort` is a variable of the model's chat template; `max_tokens` as `thinking_token_budget`",
    ),
    **THINKING,
    **OF_MODEL,
    **SAMPLING,
    **STOP,
    **{name: OUTPUT[name] for name in ("skip_special_tokens", "max_chunk_tokens", "stream")},
    **RESUME,
    "stream_options": Accepted(values.only({}, {"include_obfuscation": False}), "the last event always has the usage"),
    **OWN_CONSTRAINTS,
    **SERVING,
    **WITHOUT_EFFECT,
    **OTHER_SERVERS,
    **names_of_limit("max_output_tokens"),
    "metadata": Sets(values.labels, "", "returned with the response"),
    "background": Accepted(values.only(False), "a response ends with its call"),
    "raw": Accepted(values.only(False), "`/v1/completions` continues a text"),
    "system": Refused("use `instructions`"),
    "suffix": UNSUPPORTED["suffix"],
    "access_programs": Refused("leave it out"),
    "background_options": Refused("leave it out: a response ends with its call"),
    "context_management": Refused("send a shorter `input`"),
    "conversation": Refused("responses are not stored: send the items of the conversation as `input`"),
    "image": Refused("send the image as a part of `input`"),
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
_NO_SAMPLING = "nothing is sampled: the probabilities are those of the model itself"
DECISIONS: Table = {
    "input": Sets(
        values.anything,
        "chat.messages",
        "a string, or a list of messages, calls and their outputs",
    ),
    "questions": Sets(values.entries, "", "1 to 400 of the types `predicate`, `choice` and `score`"),
    "model": SERVING["model"],
    **{name: SERVING[name] for name in ("cache_prompt", "cache_salt", "priority")},
    **THINKING,
    "chat_template_kwargs": CHAT["chat_template_kwargs"],
    "mm_processor_kwargs": CHAT["mm_processor_kwargs"],
    **{
        name: WITHOUT_EFFECT[name]
        for name in (
            "user",
            "safety_identifier",
            "metadata",
            "prompt_cache_key",
            "prompt_cache_retention",
            "prompt_cache_options",
            "service_tier",
            "store",
        )
    },
    "temperature": Accepted(values.only(1, 1.0), _NO_SAMPLING),
    **dict.fromkeys((name for name in SAMPLING if name != "temperature"), Refused(_NO_SAMPLING)),
    "stream": Accepted(values.only(False), "the answer is one object"),
    "instructions": Refused("send a message of role `system` in `input`, and the question in `questions`"),
    "tools": Refused("the model is to answer a question, not to call a tool"),
    "messages": Refused("use `input`"),
    "state": Refused("use `input`"),
}
TOKENIZE: Table = {
    "model": SERVING["model"],
    "prompt": Sets(values.text, "", "a string"),
    "messages": CHAT["messages"],
    "tools": CHAT["tools"],
    "documents": CHAT["documents"],
    "reasoning_effort": CHAT["reasoning_effort"],
    **THINKING,
    "reasoning": CHAT["reasoning"],
    "chat_template_kwargs": CHAT["chat_template_kwargs"],
    "add_generation_prompt": CHAT["add_generation_prompt"],
    "continue_final_message": CHAT["continue_final_message"],
    "mm_processor_kwargs": CHAT["mm_processor_kwargs"],
    "add_special_tokens": Sets(values.flag, "", "of a text; default true"),
    "return_token_strs": Sets(values.flag, "", "adds the text of each token"),
}
DETOKENIZE: Table = {"model": SERVING["model"], "tokens": Sets(values.token_ids, "", "token ids")}
