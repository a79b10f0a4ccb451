"""A server of OpenAI's API with answers that a test defines, in the dialects of other servers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any

COMPLETIONS, CHAT, EMBEDDINGS = "/v1/completions", "/v1/chat/completions", "/v1/embeddings"
EXTRAS = ("ignore_eos", "continuous_usage_stats")


@dataclass
class ScriptedOpenAi:
    """The script of a server whose tokens are words. Answers have `answer_tokens`, or as many as the request allows."""

    paths: tuple[str, ...] = (COMPLETIONS, CHAT)
    other_paths: bytes = b"no such page"  # the answer of status 404
    usage: str = "continuous"  # or "last", or "none"
    knows_extras: bool = True
    tokens_per_event: int = 1
    answer_tokens: int | None = None
    added_to_prompt: int = 0
    key: str | None = None
    # (number of the streamed request) -> the status and code of a refusal
    refuse: Callable[[int], tuple[int, str] | None] = lambda number: None
    # How a stream ends: "done", "error" (an event), "cut" (no [DONE])
    ending: str = "done"
    asked: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    @property
    def streamed(self) -> list[dict[str, Any]]:
        """The bodies of the measured streamed requests. Requests that probe the server have two tokens."""
        return [body for _, body in self.asked if body.get("stream") and body["max_tokens"] > 2]

    def answer(self, path: str, body: dict[str, Any]) -> tuple[int, bytes]:
        """Returns status and content."""
        with self.lock:
            self.asked.append((path, body))
            number = len(self.streamed)
        if path not in self.paths:
            return 404, self.other_paths
        if path == EMBEDDINGS:
            n_tokens = sum(len(text.split()) + self.added_to_prompt for text in body["input"])
            return 200, json.dumps({"data": [{}] * len(body["input"]), "usage": _usage(n_tokens, 0)}).encode()
        names = {*body, *body.get("stream_options", {})}
        if not self.knows_extras and names & {*EXTRAS}:
            return 400, _error("unknown_parameter", "no such field")
        if body["stream"] and body["max_tokens"] > 2 and (refusal := self.refuse(number)):
            return refusal[0], _error(refusal[1], "not now")
        prompt = body["prompt"] if path == COMPLETIONS else body["messages"][0]["content"]
        n_prompt = len(prompt.split()) + self.added_to_prompt
        n_tokens = min(self.answer_tokens or body["max_tokens"], body["max_tokens"])
        if not body["stream"]:
            return 200, json.dumps({"choices": [{"text": "x"}], "usage": _usage(n_prompt, n_tokens)}).encode()
        return 200, b"".join(self._events(path, body, n_prompt, n_tokens))

    def _events(self, path: str, body: dict[str, Any], n_prompt: int, n_tokens: int) -> Iterator[bytes]:
        is_continuous = self.usage == "continuous" and body["stream_options"].get("continuous_usage_stats", False)
        if path == CHAT:
            yield _event({"choices": [{"delta": {"role": "assistant", "content": ""}}]})
        yield b": waiting\n\n"
        for done in range(0, n_tokens, self.tokens_per_event):
            text = "x" * min(self.tokens_per_event, n_tokens - done)
            choice = {"text": text} if path == COMPLETIONS else {"delta": {"content": text}}
            usage = {"usage": _usage(n_prompt, done + len(text))} if is_continuous else {}
            yield _event({"choices": [choice], **usage})
        if self.ending == "error":
            yield b"data: " + _error("slow_client", "too slow") + b"\n\n"
            return
        if self.usage != "none":
            yield _event({"choices": [], "usage": _usage(n_prompt, n_tokens)})
        if self.ending == "done":
            yield b"data: [DONE]\n\n"


def _usage(n_prompt: int, n_tokens: int) -> dict[str, int]:
    return {"prompt_tokens": n_prompt, "completion_tokens": n_tokens, "total_tokens": n_prompt + n_tokens}


def _event(value: object) -> bytes:
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def _error(code: str, message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "error", "param": None, "code": code}}).encode()


@contextmanager
def scripted_openai(script: ScriptedOpenAi, models: tuple[str, ...] = ("m",)) -> Iterator[str]:
    """Serves the script and yields its URL."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            listed = {"object": "list", "data": [{"id": name, "owned_by": "tests"} for name in models]}
            self.reply(*((200, json.dumps(listed).encode()) if self.path == "/v1/models" else (404, b"")))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            self.reply(*script.answer(self.path, body))

        def reply(self, status: int, content: bytes) -> None:
            if script.key is not None and self.headers["authorization"] != f"Bearer {script.key}":
                status, content = 401, _error("invalid_api_key", "wrong key")
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def version_string(self) -> str:
            return "scripted/1"

        def log_message(self, *args: object) -> None:
            """Logs nothing, because stderr belongs to the command."""

    class Server(ThreadingHTTPServer):
        request_queue_size = 128

    with Server(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
