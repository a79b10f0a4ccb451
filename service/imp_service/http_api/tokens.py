"""Text to tokens and back, in the shapes of vLLM. The limits are those of imp.v1."""

from __future__ import annotations

from collections.abc import Sequence

from imp_service.api.options import Prompt
from imp_service.api.rules import token_violations
from imp_service.http_api.checked_body import read_fields
from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.json_text import dumps
from imp_service.http_api.openai.fields import DETOKENIZE, TOKENIZE
from imp_service.http_api.openai.reasoning import chat_variables
from imp_service.http_api.openai.requests import documents_of, messages_of
from imp_service.http_api.openai.tools import read_tools
from imp_service.http_api.requests.generation import Caller
from imp_service.http_api.requests.reading import Reading
from imp_service.http_api.requests.tools import AUTO, tools_json
from imp_service.serving.errors.field_paths import paths_renamed
from imp_service.serving.large_replies import ReplySize, as_text, check_text_size, sliced
from imp_service.serving.prompt_cost import ids_bytes, reading_bytes
from imp_service.serving.rules.generation_rules import CHAT, DETOKENIZED, TOKENIZED_TEXT
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState
from imp_service.text import ChatPrompt, TextSpan


class Tokens:
    """Answers with the served model's tokenizer."""

    def __init__(self, state: ServerState) -> None:
        self._state = state

    async def tokenize(self, call: HttpCall) -> None:
        """The tokens of a text or of a conversation."""
        state = self._state
        reading, prompt = await read_fields(call, state, TOKENIZE, prompt_of, takes_images=True)
        n_bytes = reading_bytes(prompt, renders_quickly=state.model.text.renders_quickly)
        served = state.served
        body = await state.workers.run(lambda: self._tokenized(reading, prompt, served), n_bytes)
        call.answer_with(body)

    async def detokenize(self, call: HttpCall) -> None:
        """The text of tokens."""
        state = self._state
        _, tokens = await read_fields(call, state, DETOKENIZE, tokens_of)
        served = state.served
        body = await state.workers.run(lambda: self._detokenized(tokens, served), ids_bytes(len(tokens)))
        call.answer_with(body)

    # The rest may take long, and runs on a worker.

    def _tokenized(self, reading: Reading, prompt: Prompt, served: ServedModel) -> bytes:
        model = self._state.model
        size = ReplySize("messages" if isinstance(prompt, ChatPrompt) else "prompt", served)
        with paths_renamed(reading.caller_path):
            if isinstance(prompt, ChatPrompt):
                parts = model.prompts.rendered(prompt).id_parts
            else:
                adds = reading.get("add_special_tokens", True)
                parts = model.tokenizer.encode_parts([TextSpan(str(prompt), False)], add_special_tokens=adds)
            table = model.tokenizer.table.token_bytes if reading.get("return_token_strs") else None
            n_tokens, ids, texts = 0, JsonList(size), JsonList(size)
            for part in parts:
                for piece in sliced(part):
                    n_tokens += len(piece)
                    ids.add(piece)
                    if table is not None:
                        texts.add([table[token].decode("utf-8", "replace") for token in piece])
        strings = [] if table is None else [b',"token_strs":', texts.joined()]
        head = f'{{"count":{n_tokens},"max_model_len":{model.max_context},"tokens":'
        return b"".join([head.encode(), ids.joined(), *strings, b"}"])

    def _detokenized(self, tokens: Sequence[int], served: ServedModel) -> bytes:
        tokenizer, size = self._state.model.tokenizer, ReplySize("tokens", served)
        check_text_size("tokens", (tokens,), tokenizer, served)
        parts = tokenizer.decode_parts(sliced(tokens), special_tokens=True)
        text = b"".join(size.counted(dumps(part)[1:-1].encode() for part in as_text(parts)))
        return b'{"prompt":"' + text + b'"}'


def prompt_of(reading: Reading, served: ServedModel, _: Caller) -> Prompt:
    """What to tokenize. What is wrong is added to the reading."""
    if ("prompt" in reading.values) == ("messages" in reading.values):
        reading.wrong("prompt", "expected exactly one of prompt and messages")
    return chat_of(reading, served) if "messages" in reading.values else text_of(reading, served)


def text_of(reading: Reading, served: ServedModel) -> str:
    """The text to tokenize. What is wrong is added to the reading."""
    reading.set_prompt_by("prompt")
    text: str = reading.get("prompt", "")
    reading.add(TOKENIZED_TEXT.check(text, "prompt", served))
    return text


def chat_of(reading: Reading, served: ServedModel) -> ChatPrompt:
    """The conversation to tokenize. What is wrong is added to the reading."""
    chat = ChatPrompt(
        messages=messages_of(reading, served),
        tools_json=tools_json(reading, reading.read("tools", read_tools, []), AUTO),
        add_generation_prompt=reading.get("add_generation_prompt"),
        continue_final_message=reading.get("continue_final_message"),
        template_kwargs_json=chat_variables(reading, served),
        documents_json=documents_of(reading),
    )
    if "messages" in reading.values:
        reading.add(CHAT.check(chat, "chat", served))
    return chat


def tokens_of(reading: Reading, served: ServedModel, _: Caller) -> Sequence[int]:
    """The ids to detokenize. What is wrong is added to the reading."""
    reading.require("tokens")
    tokens: Sequence[int] = reading.get("tokens", ())
    too_many = list(DETOKENIZED.check(tokens, "tokens", served))
    # Too many are not checked one by one.
    reading.add(too_many or token_violations("tokens", tokens, served.n_tokens))
    return tokens


class JsonList:
    """A list as JSON, written in pieces that count for a reply."""

    def __init__(self, size: ReplySize) -> None:
        self._size = size
        self._pieces: list[bytes] = []

    def add(self, values: Sequence[object]) -> None:
        """Adds entries. Raises FIELD_INVALID if the reply is too large to be sent."""
        if values:
            self._pieces += self._size.counted([dumps(values)[1:-1].encode()])

    def joined(self) -> bytes:
        """The whole list."""
        return b"[" + b",".join(self._pieces) + b"]"
