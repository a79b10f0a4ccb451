"""Replies of a generation as a chat completion, whole or as events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from imp_service.api.replies import Chunk, Finished, Reply, Started, Usage
from imp_service.api.tool_calls import ToolCallDelta, joined_calls
from imp_service.http_api.json_text import dumps
from imp_service.http_api.openai.events import DONE, Events
from imp_service.http_api.openai.logprobs import TokenTexts, chat_entries
from imp_service.http_api.openai.replies import Head, finish_reason, prompt_fields, usage_fields
from imp_service.http_api.requests.generation import ParsedRequest


@dataclass(slots=True)
class ChatChoice:
    """The output of one choice so far."""

    content: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[ToolCallDelta] = field(default_factory=list)
    logprobs: list[dict[str, Any]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""

    def add(self, part: Chunk | Finished) -> None:
        """Adds what each channel has."""
        self.content.append(part.text)
        self.reasoning.append(part.reasoning)
        self.calls += part.tool_calls

    def fields(self) -> dict[str, Any]:
        """The message as OpenAI has it."""
        content = "".join(self.content)
        message: dict[str, Any] = {
            "role": "assistant",
            "content": content or (None if self.calls else ""),
            "refusal": None,
        }
        if reasoning := "".join(self.reasoning):
            message["reasoning_content"] = reasoning
        if self.calls:
            message["tool_calls"] = [_call(each) for each in joined_calls(self.calls)]
        return message


class ChatCompletion:
    """Gathers the replies of one generation into a chat completion."""

    def __init__(self, head: Head, parsed: ParsedRequest, token_texts: TokenTexts) -> None:
        self._head = head
        self._parsed = parsed
        self._token_texts = token_texts
        request = parsed.requests[0]
        self._has_logprobs = request.output.logprobs
        self._messages = [ChatChoice() for _ in range(request.num_sequences)]
        self._usage: Usage | None = None
        self._extra: dict[str, Any] = {}

    def add(self, _: int, reply: Reply) -> None:
        """Adds a reply."""
        match reply:
            case Started():
                self._extra = prompt_fields(self._parsed, 0, reply, self._token_texts)
            case Chunk():
                message = self._messages[reply.index]
                message.add(reply)
                message.token_ids += reply.token_ids
                if self._has_logprobs:
                    message.logprobs += chat_entries(
                        self._token_texts, reply.token_ids, reply.logprobs, reply.candidates
                    )
            case Finished():
                message = self._messages[reply.index]
                message.add(reply)
                message.finish_reason = finish_reason(reply, has_calls=bool(message.calls))
                self._usage = reply.usage or self._usage

    def body(self) -> bytes:
        """The whole reply."""
        assert self._usage is not None  # the last reply has it
        return dumps(
            {
                **self._head.of("chat.completion"),
                "choices": [self._choice(i, message) for i, message in enumerate(self._messages)],
                "usage": _whole_usage(self._usage),
                **self._extra,
            }
        ).encode()

    def _choice(self, index: int, message: ChatChoice) -> dict[str, Any]:
        choice = {
            "index": index,
            "message": message.fields(),
            "logprobs": {"content": message.logprobs, "refusal": None} if self._has_logprobs else None,
            "finish_reason": message.finish_reason,
        }
        return {**choice, "token_ids": message.token_ids} if self._parsed.returns_token_ids else choice


class ChatEvents:
    """Writes the replies of one generation as events."""

    def __init__(self, head: Head, parsed: ParsedRequest, token_texts: TokenTexts) -> None:
        self._parsed = parsed
        self._token_texts = token_texts
        self._request = parsed.requests[0]
        self._events = Events(head, "chat.completion.chunk", has_usage=parsed.includes_usage)
        self._has_called = [False] * self._request.num_sequences
        self._n_prompt = self._n_cached = self._n_output = 0
        self._usage: Usage | None = None

    def write(self, _: int, reply: Reply) -> bytes:
        """The events of a reply. May be empty."""
        match reply:
            case Started():
                return self._begin(reply)
            case Chunk():
                self._n_output += len(reply.token_ids)
                return self._chunk(reply)
            case Finished():
                self._usage = reply.usage or self._usage
                rest = self._deltas(reply.index, reply.text, reply.reasoning, reply.tool_calls)
                reason = finish_reason(reply, has_calls=self._has_called[reply.index])
                return rest + self._event(reply.index, "{}", finish=reason)
        return b""

    def end(self) -> bytes:
        """The last events."""
        if not self._parsed.includes_usage:
            return DONE
        assert self._usage is not None  # the last reply has it
        return self._events.usage(_whole_usage(self._usage)) + DONE

    def over(self) -> bytes:
        """The event that ends every stream."""
        return DONE

    def _begin(self, started: Started) -> bytes:
        self._n_prompt, self._n_cached = started.prompt_tokens, started.cached_prompt_tokens
        prompt = prompt_fields(self._parsed, 0, started, self._token_texts)
        extra = "".join(f',"{name}":{dumps(value)}' for name, value in prompt.items())
        return b"".join(
            self._event(i, '{"role":"assistant","content":""}', extra=extra) for i in range(self._request.num_sequences)
        )

    def _chunk(self, chunk: Chunk) -> bytes:
        if not self._request.output.logprobs and not self._parsed.returns_token_ids:
            return self._deltas(chunk.index, chunk.text, chunk.reasoning, chunk.tool_calls)
        logprobs, extra = "null", ""
        if self._request.output.logprobs:
            entries = chat_entries(self._token_texts, chunk.token_ids, chunk.logprobs, chunk.candidates)
            logprobs = dumps({"content": entries, "refusal": None})
        if self._parsed.returns_token_ids:
            extra = f',"token_ids":{dumps(chunk.token_ids)}'
        others = self._deltas(chunk.index, "", chunk.reasoning, chunk.tool_calls)
        return others + self._event(chunk.index, f'{{"content":{dumps(chunk.text)}}}', logprobs, extra)

    def _deltas(self, index: int, content: str, reasoning: str, calls: Sequence[ToolCallDelta]) -> bytes:
        """An event for each channel that has something new."""
        found = b""
        if reasoning:
            found += self._event(index, f'{{"reasoning_content":{dumps(reasoning)}}}')
        if content:
            found += self._event(index, f'{{"content":{dumps(content)}}}')
        if calls:
            self._has_called[index] = True
            found += self._event(index, f'{{"tool_calls":{dumps([_call_delta(each) for each in calls])}}}')
        return found

    def _event(self, index: int, delta: str, logprobs: str = "null", extra: str = "", finish: str = "") -> bytes:
        reason = f'"{finish}"' if finish else "null"
        choice = f'{{"index":{index},"delta":{delta},"logprobs":{logprobs},"finish_reason":{reason}{extra}}}'
        return self._events.choice(choice, self._usage_so_far() if self._parsed.continuous_usage else None)

    def _usage_so_far(self) -> dict[str, Any]:
        return usage_fields(Usage(self._n_prompt, self._n_cached, self._n_output))


def _whole_usage(usage: Usage) -> dict[str, Any]:
    """The tokens of a chat that has ended."""
    return {**usage_fields(usage), "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens}}


def _call_delta(delta: ToolCallDelta) -> dict[str, Any]:
    rest = _call(delta) if delta.name else {"function": {"arguments": delta.arguments}}
    return {"index": delta.index, **rest}


def _call(call: ToolCallDelta) -> dict[str, Any]:
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
