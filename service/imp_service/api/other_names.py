"""Names that other servers and libraries have for what imp does, and the keyword that does it here.

They are those of OpenAI's API, vLLM, llama.cpp, Ollama and transformers. HTTP takes most of them (docs/openai.md);
the library names its own keyword.
"""

from __future__ import annotations

from collections.abc import Mapping

# A keyword of the same meaning and with the same values.
SAME: Mapping[str, str] = {
    "temp": "temperature",
    "typ_p": "typical_p",
    **dict.fromkeys(("repeat_penalty", "penalty_repeat"), "repetition_penalty"),
    **dict.fromkeys(
        ("n_predict", "num_predict", "max_new_tokens", "max_length", "max_completion_tokens", "max_output_tokens"),
        "max_tokens",
    ),
    **dict.fromkeys(("stop_sequences", "stop_strings", "stops"), "stop"),
    **dict.fromkeys(("eos_token_id", "stop_token_id"), "stop_token_ids"),
    **dict.fromkeys(("n", "best_of", "num_return_sequences"), "num_sequences"),
    "repeat_last_n": "penalty_window",
    "include_stop_str_in_output": "include_match",
    **dict.fromkeys(("guided_json", "schema", "response_model", "output_type"), "json_schema"),
    **dict.fromkeys(("guided_regex", "pattern"), "regex"),
    **dict.fromkeys(("guided_choice", "choice"), "choices"),
    **dict.fromkeys(("grammar", "guided_grammar"), "gbnf"),
    "chat_template_kwargs": "template_kwargs",
    "thinking_token_budget": "max_reasoning_tokens",
}
_THINKING = 'write template_kwargs={"enable_thinking": True or False}, if the chat template has the variable'
_EFFORT = 'write template_kwargs={"reasoning_effort": "low"}, if the chat template has the variable'
_DRY = "write dry=DryOptions(…)"
# Names without such a keyword, and what to do instead.
ADVICE: Mapping[str, str] = {
    **dict.fromkeys(("stream", "streamer"), "iterate over the generation, whose replies come as imp makes them"),
    "do_sample": "temperature=0 takes the most likely token, above 0 imp samples",
    "response_format": "write json_schema=SCHEMA or json_object=True",
    "format": "write json_schema=SCHEMA or json_object=True",
    "structured_outputs": "write json_schema=, regex=, choices= or gbnf=",
    "guided_decoding": "write json_schema=, regex=, choices= or gbnf=",
    "sampling_params": "each option is a keyword, as in temperature=0.8, max_tokens=40",
    **dict.fromkeys(("generation_config", "options"), "each option is a keyword, as in temperature=0.8, max_tokens=40"),
    "skip_special_tokens": "special_tokens=True shows control tokens in the text",
    "return_token_ids": "a result has its token_ids; prompt_token_ids=True adds those of the prompt",
    "cache_prompt": "bypass_prefix=True computes the whole prompt",
    "t_max_predict_ms": "write time_limit=SECONDS",
    "echo": "the prompt is no part of the text; prompt_logprobs=True scores it",
    **dict.fromkeys(("system", "system_prompt"), 'write chat([{"role": "system", "content": …}, …])'),
    "messages": "chat() takes messages, as its first argument",
    "tools": "chat() takes tools",
    "documents": "chat() takes documents",
    **dict.fromkeys(("think", "thinking", "enable_thinking"), _THINKING),
    **dict.fromkeys(("reasoning_effort", "reasoning"), _EFFORT),
    **dict.fromkeys(
        ("dry_multiplier", "dry_base", "dry_allowed_length", "dry_penalty_last_n", "dry_sequence_breakers"), _DRY
    ),
    "mm_processor_kwargs": "Image(…, max_tokens=N) bounds the tokens of an image of any size",
    "model": "load() and connect() choose the model",
    "max_chunk_tokens": "a reply has the tokens that are new when it is read",
}
