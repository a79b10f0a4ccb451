"""llama-server's path for code completion: a text with a gap in, the text that fills it out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from imp_service.api.chat_prompt import InfillFile, InfillPrompt
from imp_service.api.options import OutputOptions
from imp_service.api.replies import Chunk, Finished, Reply, Started, Timings, Usage
from imp_service.http_api.answers.marks import EventWriter
from imp_service.http_api.json_text import dumps
from imp_service.http_api.openai.replies import Head, finish_reason
from imp_service.http_api.openai.requests import generation_of, parsed_request
from imp_service.http_api.requests.generation import Caller, ParsedRequest
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.values import anything, read_members, text, within
from imp_service.serving.rules.generation_rules import INFILL
from imp_service.serving.served_model import ServedModel

# Why an output ended.
STOP_TYPES = {"length": "limit", "stop": "eos"}
# Editors send when they read a file.
FILE_MEMBERS = {"filename": text, "text": text, "time": anything}


def read_infill(reading: Reading, served: ServedModel, caller: Caller) -> ParsedRequest:
    """A text with a gap. Raises FieldsInvalid with everything that is wrong."""
    reading.require("input_prefix")
    reading.require("input_suffix")
    no_files: tuple[InfillFile, ...] = ()
    files = reading.read("input_extra", _files, no_files, ignores_unknown=True)
    prefix, suffix, middle = (reading.get(name, "") for name in ("input_prefix", "input_suffix", "prompt"))
    prompt = InfillPrompt(prefix, suffix, middle, files)
    reading.add(INFILL.check(prompt, "input_prefix", served))
    reading.set_prompt_by("input_prefix")
    reading.set_by("infill", "input_prefix")
    return parsed_request(reading, [generation_of(reading, prompt, served, caller, OutputOptions())], served)


def _files(value: list[Any]) -> tuple[InfillFile, ...]:
    return tuple(within(f"[{i}]", _file, each) for i, each in enumerate(value))


def _file(value: Any) -> InfillFile:
    given = read_members(value, FILE_MEMBERS)
    return InfillFile(given.get("filename", ""), given.get("text", ""))


class Infilled(EventWriter):
    """Gathers replies into one object, or writes them as events."""

    def __init__(self, head: Head, parsed: ParsedRequest) -> None:
        self._head = head
        self._wanted = parsed.reading.get("response_fields", ())
        self._has_ids = parsed.returns_token_ids or parsed.is_streamed
        self._texts: list[str] = []
        self._token_ids: list[int] = []
        self._end: Finished | None = None

    def add(self, prompt: int, reply: Reply) -> None:
        """Adds a reply."""
        if isinstance(reply, Started):
            return
        self._texts.append(reply.text)
        if isinstance(reply, Chunk):
            self._token_ids += reply.token_ids
        else:
            self._end = reply

    def write(self, prompt: int, reply: Reply) -> bytes:
        """The event of a reply. May be empty."""
        self.add(prompt, reply)
        if isinstance(reply, Started):
            return b""
        event = self._whole() if isinstance(reply, Finished) else self._taken()
        return f"data: {dumps(event)}\n\n".encode()

    def end(self) -> bytes:
        """The last event is that of the end."""
        return b""

    def body(self) -> bytes:
        """The whole reply."""
        return dumps(self._whole()).encode()

    def _taken(self) -> dict[str, Any]:
        """What no event has had yet."""
        taken = {"index": 0, "content": "".join(self._texts), "stop": self._end is not None}
        taken["tokens"] = self._token_ids if self._has_ids else []
        self._texts, self._token_ids = [], []
        return taken

    def _whole(self) -> dict[str, Any]:
        end = self._end
        assert end is not None and end.usage is not None and end.timings is not None  # it is the only sequence
        word = "" if end.match is None else end.match.text or ""
        reply = {
            **self._taken(),
            "model": self._head.model,
            "stop_type": "word" if word else STOP_TYPES[finish_reason(end)],
            "stopping_word": word,
            "truncated": False,
            "tokens_predicted": end.usage.output_tokens,
            "tokens_evaluated": end.usage.prompt_tokens,
            "tokens_cached": end.usage.cached_prompt_tokens,
            "timings": _timings(end.usage, end.timings),
        }
        return _chosen(reply, self._wanted) if self._wanted else reply


def _timings(usage: Usage, timings: Timings) -> dict[str, Any]:
    n_prompt = usage.prompt_tokens - usage.cached_prompt_tokens
    found: dict[str, Any] = {"cache_n": usage.cached_prompt_tokens}
    for name, n, seconds in (("prompt", n_prompt, timings.prefill), ("predicted", usage.output_tokens, timings.decode)):
        found[f"{name}_n"], found[f"{name}_ms"] = n, seconds * 1000
        found[f"{name}_per_token_ms"] = seconds * 1000 / n if n else None
        found[f"{name}_per_second"] = n / seconds if seconds else None
    return found


def _chosen(reply: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """The fields of these names, of which one is a member of another after a slash. Others are left out."""
    found = {}
    for name in names:
        field, _, member = name.partition("/")
        value = reply.get(field)
        if member:
            value = value.get(member) if isinstance(value, dict) else None
        if value is not None:
            found[name] = value
    return found
