"""Bodies of the shape that popular programs send, written from their public sources. Each is answered (OAI-15)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from support.servers.http_served import DEMO_MODEL, HttpServed

CHATS, TEXTS, RESPONSES = "/v1/chat/completions", "/v1/completions", "/v1/responses"
PARAMETERS = {
    "type": "object",
    "properties": {"path": {"type": "string", "description": "The path of the file."}},
    "required": ["path"],
}
READ_FILE = {
    "type": "function",
    "function": {"name": "read_file", "description": "Reads a file.", "parameters": PARAMETERS},
}
CALL = {"id": "call_1", "type": "function", "function": {"name": "read_file", "arguments": '{"path": "a.py"}'}}

# A chat whose advanced parameters and custom parameters a user has set, as they were for Ollama.
OPEN_WEBUI = {
    "stream": True,
    "model": DEMO_MODEL,
    "messages": [
        {"role": "system", "content": "User: Zoë. Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "What is the sky?"}]},
        {"role": "assistant", "content": "Blue.", "reasoning_details": None},
        {"role": "user", "content": "Why?"},
    ],
    "stream_options": {"include_usage": True},
    "temperature": 0.8,
    "top_p": 0.9,
    "top_k": 40,
    "min_p": 0.0,
    "frequency_penalty": 0.0,
    "presence_penalty": 0.0,
    "max_tokens": 16,
    "seed": 0,
    "stop": ["\n\n"],
    "logit_bias": {"5": -100},
    "reasoning_effort": "medium",
    "repeat_penalty": 1.1,
    "repeat_last_n": 64,
    "mirostat": 0,
    "mirostat_eta": 0.1,
    "mirostat_tau": 5.0,
    "tfs_z": 1,
    "num_ctx": 8192,
    "num_keep": 24,
    "num_batch": 512,
    "num_thread": 8,
    "num_gpu": 99,
    "use_mmap": True,
    "use_mlock": False,
    "keep_alive": "5m",
    "think": True,
}
OPEN_WEBUI_IGNORED = {
    *("reasoning_effort", "mirostat_eta", "mirostat_tau", "num_ctx", "num_keep", "num_batch", "num_thread"),
    *("num_gpu", "use_mmap", "use_mlock", "keep_alive", "think"),
}

CONTINUE = {
    "messages": [
        {"role": "system", "content": "<important_rules>You are in chat mode.</important_rules>"},
        {"role": "user", "content": [{"type": "text", "text": "```py a.py\nx = 1\n```\nExplain it."}]},
    ],
    "model": DEMO_MODEL,
    "max_tokens": 16,
    "temperature": 0.5,
    "top_p": None,
    "frequency_penalty": None,
    "presence_penalty": None,
    "stop": ["Question:"],
    "stream": True,
    "stream_options": {"include_usage": True},
    "tools": [READ_FILE],
    "parallel_tool_calls": False,
}
# Applies an edit to a file.
CONTINUE_APPLY = {**CONTINUE, "prediction": {"type": "content", "content": "x = 1\n"}}
# Completes the code at the cursor: its own template is in the prompt.
CONTINUE_AUTOCOMPLETE = {
    "prompt": "<|fim_prefix|>def add(a, b):\n    return <|fim_suffix|>\n<|fim_middle|>",
    "model": DEMO_MODEL,
    "max_tokens": 16,
    "temperature": 0.01,
    "stream": True,
    "stop": [
        *("<|endoftext|>", "<|fim_prefix|>", "<|fim_middle|>", "<|fim_suffix|>", "<|fim_pad|>", "<|repo_name|>"),
        *("<|file_sep|>", "<|im_start|>", "<|im_end|>", "/src/", "#- coding: utf-8", "```", "\ndef", '\n"""#'),
    ],
}

ZED = {
    "model": DEMO_MODEL,
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "You are a skilled engineer."}]},
        {"role": "user", "content": [{"type": "text", "text": "Read a.py."}]},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "content": [{"type": "text", "text": "x = 1"}], "tool_call_id": "call_1"},
    ],
    "stream": True,
    "stream_options": {"include_usage": True},
    "max_completion_tokens": 16,
    "stop": [],
    "temperature": 1.0,
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "tools": [READ_FILE],
    "prompt_cache_key": "thread-1",
}

# An agent's turn: it describes its tools in the system message, and reads them out of the text.
CLINE = {
    "model": DEMO_MODEL,
    "messages": [
        {"role": "system", "content": "You are Cline. TOOL USE: <read_file><path>a.py</path></read_file>"},
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<task>\nExplain a.py\n</task>"},
                {"type": "text", "text": "<environment_details>\n# Current Mode\nACT MODE\n</environment_details>"},
            ],
        },
        {"role": "assistant", "content": "<read_file><path>a.py</path></read_file>"},
        {"role": "user", "content": [{"type": "text", "text": "[read_file for 'a.py'] Result:\nx = 1"}]},
    ],
    "temperature": 0,
    "max_tokens": 16,
    "stream": True,
    "stream_options": {"include_usage": True},
    "reasoning_effort": "medium",
}

# A chat of an endpoint with the parameters of its preset.
LIBRECHAT = {
    "model": DEMO_MODEL,
    "user": "66f0c1",
    "messages": [
        {"role": "system", "content": "Be brief.", "name": "instructions"},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": "Hi.", "tool_calls": []},
        {"role": "user", "content": "Who are you?"},
    ],
    "temperature": 1,
    "top_p": 1,
    "presence_penalty": 0,
    "frequency_penalty": 0,
    "max_tokens": 16,
    "stop": None,
    "stream": True,
    "stream_options": {"include_usage": True},
    "n": 1,
}

# The second turn of a task: the history has the reasoning and the call of the first one.
CODEX = {
    "model": DEMO_MODEL,
    "instructions": "You are a coding agent.",
    "input": [
        {
            "type": "message",
            "role": "developer",
            "content": [{"type": "input_text", "text": "<permissions>workspace-write</permissions>"}],
        },
        {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "<environment_context><cwd>/a</cwd></environment_context>"}],
        },
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "List the files."}]},
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "I look."}],
            "encrypted_content": None,
        },
        {"type": "function_call", "name": "shell", "arguments": '{"command": ["ls"]}', "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "a.py"},
    ],
    "tools": [
        {
            "type": "function",
            "name": "shell",
            "description": "Runs a command.",
            "strict": False,
            "parameters": {
                "type": "object",
                "properties": {"command": {"type": "array", "items": {"type": "string"}}},
                "required": ["command"],
                "additionalProperties": False,
            },
        },
        {
            "type": "custom",
            "name": "apply_patch",
            "description": "Edits files.",
            "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "*** Begin Patch"'},
        },
        {"type": "web_search", "external_web_access": False},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "detailed"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "service_tier": "priority",
    "prompt_cache_key": "0199-4c",
    "text": {"verbosity": "low"},
    "client_metadata": {"x-codex-installation-id": "0199"},
    "max_output_tokens": 16,
}
CODEX_IGNORED = {
    *("tools[1]", "tools[2]", "reasoning.summary", "reasoning.effort", "service_tier", "text.verbosity"),
    "client_metadata",
}


@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        (CHATS, OPEN_WEBUI, OPEN_WEBUI_IGNORED),
        (CHATS, CONTINUE, set()),
        (CHATS, CONTINUE_APPLY, {"prediction"}),
        (TEXTS, CONTINUE_AUTOCOMPLETE, set()),
        (CHATS, CLINE, {"reasoning_effort"}),
        (CHATS, LIBRECHAT, set()),
        (CHATS, ZED, set()),
        (RESPONSES, CODEX, CODEX_IGNORED),
    ],
    ids=[
        "Open WebUI",
        "Continue",
        "Continue's edits",
        "Continue's autocomplete",
        "Cline",
        "LibreChat",
        "Zed",
        "Codex CLI",
    ],
)
def test_oai_15_the_body_is_answered(http: HttpServed, path: str, body: dict[str, Any], ignored: set[str]) -> None:
    events = http.client.stream(path, body)
    assert events.has_done and events.error is None
    assert set(json.loads(f"[{events.headers.get('imp-ignored', '')}]")) == ignored


def test_oai_15_what_codex_offers_and_imp_cannot_run_is_hidden_from_the_model(http: HttpServed) -> None:
    functions = [tool for tool in CODEX["tools"] if tool["type"] == "function"]  # type: ignore[attr-defined]
    asked = {**CODEX, "stream": False}
    whole, fewer = (http.client.post(RESPONSES, each).json for each in (asked, {**asked, "tools": functions}))
    assert whole["usage"]["input_tokens"] == fewer["usage"]["input_tokens"]
    assert whole["tools"] == fewer["tools"] == functions
