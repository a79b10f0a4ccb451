"""Replies of the generations of a completion, one for each prompt, whole or as events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from imp_service.api.replies import Chunk, Finished, Reply, Started, TokenScores, Usage
from imp_service.http_api.json_text import dumps
from imp_service.http_api.openai.events import DONE, Events
from imp_service.http_api.openai.logprobs import CompletionLogprobs, TokenTexts
from imp_service.http_api.openai.replies import Head, finish_reason, prompt_fields, sum_of, usage_fields
from imp_service.http_api.requests.generation import ParsedRequest

KIND = "text_completion"


@dataclass(slots=True)
class CompletionChoice:
    """The output of one choice so far."""

    logprobs: CompletionLogprobs | None
    texts: list[str] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)
    finish_reason: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


class Choices:
    """The choices of all prompts. Prompt p has the n choices from index p · n."""

    def __init__(self, parsed: ParsedRequest, token_texts: TokenTexts) -> None:
        self._parsed = parsed
        self._token_texts = token_texts
        self._n = parsed.requests[0].num_sequences
        output = parsed.requests[0].output
        self.all = [
            CompletionChoice(CompletionLogprobs(token_texts, output.top_logprobs) if output.logprobs else None)
            for _ in range(self._n * len(parsed.requests))
        ]
        self.usages: list[Usage] = []

    def of_prompt(self, prompt: int) -> range:
        """The choices of a prompt."""
        return range(prompt * self._n, (prompt + 1) * self._n)

    def start(self, prompt: int, started: Started) -> None:
        """Adds the prompt where it is asked for."""
        extra = prompt_fields(self._parsed, prompt, started, self._token_texts)
        for i in self.of_prompt(prompt):
            choice = self.all[i]
            choice.extra = extra
            if self._parsed.echo:
                choice.texts.append(self._echoed(prompt, started))
                if choice.logprobs is not None:
                    choice.logprobs.add(started.prompt)

    def add(self, prompt: int, chunk: Chunk) -> int:
        """Adds new tokens. Returns the number of their choice."""
        index = prompt * self._n + chunk.index
        choice = self.all[index]
        choice.texts.append(chunk.text)
        choice.token_ids += chunk.token_ids
        if choice.logprobs is not None:
            choice.logprobs.add(TokenScores(chunk.token_ids, chunk.logprobs, chunk.candidates))
        return index

    def finish(self, prompt: int, end: Finished) -> int:
        """Ends a choice. Returns its number."""
        index = prompt * self._n + end.index
        self.all[index].texts.append(end.text)
        self.all[index].finish_reason = finish_reason(end)
        if end.usage is not None:
            self.usages.append(end.usage)
        return index

    def _echoed(self, prompt: int, started: Started) -> str:
        asked = self._parsed.requests[prompt].prompt
        if isinstance(asked, str):
            return asked
        return b"".join(self._token_texts.content(token) for token in asked).decode("utf-8", "replace")  # type: ignore[union-attr]


class Completion:
    """Gathers replies into a completion."""

    def __init__(self, head: Head, parsed: ParsedRequest, token_texts: TokenTexts) -> None:
        self._head = head
        self._parsed = parsed
        self._choices = Choices(parsed, token_texts)

    def add(self, prompt: int, reply: Reply) -> None:
        """Adds a reply to the generation of a prompt."""
        match reply:
            case Started():
                self._choices.start(prompt, reply)
            case Chunk():
                self._choices.add(prompt, reply)
            case Finished():
                self._choices.finish(prompt, reply)

    def body(self) -> bytes:
        """The whole reply."""
        return dumps(
            {
                **self._head.of(KIND),
                "choices": [self._choice(i, choice) for i, choice in enumerate(self._choices.all)],
                "usage": usage_fields(sum_of(self._choices.usages)),
            }
        ).encode()

    def _choice(self, index: int, choice: CompletionChoice) -> dict[str, Any]:
        return {
            "index": index,
            "text": "".join(choice.texts),
            "logprobs": None if choice.logprobs is None else choice.logprobs.take(),
            "finish_reason": choice.finish_reason,
            **choice.extra,
            **({"token_ids": choice.token_ids} if self._parsed.returns_token_ids else {}),
        }


class CompletionEvents:
    """Writes replies as events."""

    def __init__(self, head: Head, parsed: ParsedRequest, token_texts: TokenTexts) -> None:
        self._parsed = parsed
        self._choices = Choices(parsed, token_texts)
        self._events = Events(head, KIND, has_usage=parsed.includes_usage)
        # By prompt: tokens of the prompt, cached tokens, output so far.
        self._used = [Usage(0, 0, 0) for _ in parsed.requests]

    def write(self, prompt: int, reply: Reply) -> bytes:
        """The events of a reply to one prompt. May be empty."""
        match reply:
            case Started():
                self._used[prompt] = Usage(reply.prompt_tokens, reply.cached_prompt_tokens, 0)
                self._choices.start(prompt, reply)
                return b"".join(self._new(i) for i in self._choices.of_prompt(prompt))
            case Chunk():
                used = self._used[prompt]
                n_output = used.output_tokens + len(reply.token_ids)
                self._used[prompt] = Usage(used.prompt_tokens, used.cached_prompt_tokens, n_output)
                return self._new(self._choices.add(prompt, reply))
            case Finished():
                index = self._choices.finish(prompt, reply)
                if reply.usage is not None:
                    self._used[prompt] = reply.usage
                return self._event(index, self._choices.all[index].finish_reason)
        return b""

    def end(self) -> bytes:
        """The last events."""
        if not self._parsed.includes_usage:
            return DONE
        return self._events.usage(usage_fields(sum_of(self._used))) + DONE

    def over(self) -> bytes:
        """The event that ends every stream."""
        return DONE

    def _new(self, index: int) -> bytes:
        """An event with the new output of a choice, if there is any."""
        choice = self._choices.all[index]
        has_new = any(choice.texts) or choice.extra or (choice.logprobs is not None and choice.logprobs.tokens)
        return self._event(index) if has_new or (self._parsed.returns_token_ids and choice.token_ids) else b""

    def _event(self, index: int, finish: str = "") -> bytes:
        choice = self._choices.all[index]
        fields: dict[str, Any] = {"index": index, "text": "".join(choice.texts)}
        has_entries = choice.logprobs is not None and choice.logprobs.tokens
        fields["logprobs"] = choice.logprobs.take() if choice.logprobs is not None and has_entries else None
        fields["finish_reason"] = finish or None
        fields |= choice.extra
        if self._parsed.returns_token_ids:
            fields["token_ids"] = choice.token_ids
        choice.texts, choice.token_ids, choice.extra = [], [], {}
        usage = usage_fields(sum_of(self._used)) if self._parsed.continuous_usage else None
        return self._events.choice(dumps(fields), usage)
