"""Chat completions, completions and responses: from a request's body to the last byte of its answer."""

from __future__ import annotations

from imp_service.http_api.answers.answering import Answering
from imp_service.http_api.answers.marks import AnswerName
from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.openai.chat import ChatCompletion, ChatEvents
from imp_service.http_api.openai.completions import Completion, CompletionEvents
from imp_service.http_api.openai.fields import CHAT, COMPLETIONS, INFILL, RESPONSES
from imp_service.http_api.openai.infill import Infilled, read_infill
from imp_service.http_api.openai.logprobs import TokenTexts
from imp_service.http_api.openai.replies import CHAT_PREFIX, COMPLETION_PREFIX, RESPONSE_PREFIX, Head
from imp_service.http_api.openai.requests import read_chat, read_completion
from imp_service.http_api.openai.response_requests import read_response
from imp_service.http_api.openai.responses import Response, ResponseEvents, WholeResponse
from imp_service.http_api.requests.generation import ParsedRequest
from imp_service.serving.model_names import public_name
from imp_service.serving.server_state import ServerState


class OpenAi:
    """Answers the calls of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._answering = Answering(state)

    async def chat(self, call: HttpCall) -> None:
        """A chat completion."""
        parsed = await self._answering.read(call, CHAT, read_chat, takes_images=True)
        name = self._answering.name(call, parsed, CHAT_PREFIX)
        head, token_texts = self._head(name), self._token_texts(parsed)
        if parsed.is_streamed:
            await self._answering.stream(call, parsed, ChatEvents(head, parsed, token_texts), name)
        else:
            await self._answering.gather(call, parsed, ChatCompletion(head, parsed, token_texts))

    async def completions(self, call: HttpCall) -> None:
        """A completion of one prompt or more."""
        parsed = await self._answering.read(call, COMPLETIONS, read_completion)
        name = self._answering.name(call, parsed, COMPLETION_PREFIX)
        head, token_texts = self._head(name), self._token_texts(parsed)
        if parsed.is_streamed:
            await self._answering.stream(call, parsed, CompletionEvents(head, parsed, token_texts), name)
        else:
            await self._answering.gather(call, parsed, Completion(head, parsed, token_texts))

    async def infill(self, call: HttpCall) -> None:
        """A completion of a text with a gap, in the form of llama-server."""
        parsed = await self._answering.read(call, INFILL, read_infill)
        name = self._answering.name(call, parsed, "")
        infilled = Infilled(self._head(name), parsed)
        if parsed.is_streamed:
            await self._answering.stream(call, parsed, infilled, name)
        else:
            await self._answering.gather(call, parsed, infilled)

    async def responses(self, call: HttpCall) -> None:
        """A response."""
        parsed = await self._answering.read(call, RESPONSES, read_response, takes_images=True)
        name = self._answering.name(call, parsed, RESPONSE_PREFIX)
        response = Response(self._head(name), parsed, self._token_texts(parsed))
        if parsed.is_streamed:
            events = ResponseEvents(response)
            call.failure_event = events.failure
            await self._answering.stream(call, parsed, events, name)
        else:
            await self._answering.gather(call, parsed, WholeResponse(response))

    def _head(self, name: AnswerName) -> Head:
        model = self._state.model
        return Head(name.id, name.created, public_name(model.name), f"imp-{model.fingerprint.digest}")

    def _token_texts(self, parsed: ParsedRequest) -> TokenTexts:
        shows_special = parsed.requests[0].output.special_tokens
        return TokenTexts(self._state.model.tokenizer.table, shows_special, shows_ids=parsed.returns_token_ids)
