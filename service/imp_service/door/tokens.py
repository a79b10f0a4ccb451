"""Text to tokens and back, in the shapes of vLLM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from imp_service.door.bodies import read_body
from imp_service.door.http_call import HttpCall
from imp_service.door.openai.events import dumps
from imp_service.door.openai.fields import DETOKENIZE, TOKENIZE
from imp_service.door.openai.reading import Reading
from imp_service.door.openai.requests import chat_variables, documents_of, messages_of
from imp_service.door.openai.tools import AUTO, read_tools, tools_json
from imp_service.generation.validate import token_violations
from imp_service.serving.errors.field_paths import paths_renamed
from imp_service.serving.host import Host
from imp_service.serving.model_names import require_served
from imp_service.text import ChatPrompt, TextSpan

# Entries of a list that are written to JSON at once.
PIECE = 8192


class Tokens:
    """Answers with the served model's tokenizer."""

    def __init__(self, host: Host) -> None:
        self._host = host

    async def tokenize(self, call: HttpCall) -> None:
        """The tokens of a text or of a conversation."""
        reading = await self._read(call, TOKENIZE)
        body = await self._host.workers.run(lambda: self._tokenized(reading), call.n_request_bytes)
        call.ignore(reading.ignored)
        call.answer_with(body)

    async def detokenize(self, call: HttpCall) -> None:
        """The text of tokens."""
        reading = await self._read(call, DETOKENIZE)
        body = await self._host.workers.run(lambda: self._detokenized(reading), call.n_request_bytes)
        call.ignore(reading.ignored)
        call.answer_with(body)

    async def _read(self, call: HttpCall, table: Any) -> Reading:
        host = self._host

        def read(body: Mapping[str, Any]) -> Reading:
            reading = Reading(body, table, ignores_unknown=host.settings.http.unknown_fields == "ignore")
            require_served(reading.get("model"), host.served.names)
            return reading

        return await read_body(call, host, read)

    # The rest may take long, and runs on a worker.

    def _tokenized(self, reading: Reading) -> bytes:
        tokens = self._tokens(reading)
        fields = [f'"count":{len(tokens)},"max_model_len":{self._host.model.max_context},"tokens":{json_list(tokens)}']
        if reading.get("return_token_strs"):
            table = self._host.model.tokenizer.table.token_bytes
            fields.append(f'"token_strs":{json_list([table[token].decode("utf-8", "replace") for token in tokens])}')
        return f"{{{','.join(fields)}}}".encode()

    def _detokenized(self, reading: Reading) -> bytes:
        model = self._host.model
        reading.require("tokens")
        tokens = reading.get("tokens", ())
        reading.add(token_violations("tokens", tokens, model.n_tokens))
        reading.refuse()
        return dumps({"prompt": model.tokenizer.decode(tokens, special_tokens=True)}).encode()

    def _tokens(self, reading: Reading) -> list[int]:
        model = self._host.model
        if ("prompt" in reading.values) == ("messages" in reading.values):
            reading.wrong("prompt", "expected exactly one of prompt and messages")
        if "messages" not in reading.values:
            reading.set_prompt_by("prompt")
            reading.refuse()
            spans = [TextSpan(reading.get("prompt"), parses_special_tokens=False)]
            with paths_renamed(reading.caller_path):
                return model.tokenizer.encode_spans(spans, add_special_tokens=reading.get("add_special_tokens", True))
        chat = ChatPrompt(
            messages=messages_of(reading, self._host.served),
            tools_json=tools_json(reading, reading.read("tools", read_tools, []), AUTO),
            add_generation_prompt=reading.get("add_generation_prompt"),
            continue_final_message=reading.get("continue_final_message"),
            template_kwargs_json=chat_variables(reading, self._host.served),
            documents_json=documents_of(reading),
        )
        reading.refuse()
        with paths_renamed(reading.caller_path):
            return model.tokenizer.encode_spans(model.text.render(chat).spans, add_special_tokens=False)


def json_list(values: Sequence[object]) -> str:
    """A list as JSON, written in pieces: between two of them the event loop's thread can run."""
    pieces = [dumps(values[first : first + PIECE])[1:-1] for first in range(0, len(values), PIECE)]
    return f"[{','.join(pieces)}]"
