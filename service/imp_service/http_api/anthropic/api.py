"""Messages, and the number of their tokens: from a request's body to the last byte of its answer."""

from __future__ import annotations

from imp_service.api.options import GenerationRequest
from imp_service.http_api.answers.answering import Answering
from imp_service.http_api.anthropic.fields import COUNT_TOKENS, MESSAGES
from imp_service.http_api.anthropic.replies import PREFIX, Message, MessageEvents, WholeMessage
from imp_service.http_api.anthropic.requests import read_message
from imp_service.http_api.checked_body import read_fields
from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.json_text import dumps
from imp_service.serving.errors.field_paths import paths_renamed
from imp_service.serving.model_names import public_name
from imp_service.serving.prompt_cost import planning_bytes
from imp_service.serving.server_state import ServerState
from imp_service.text import ChatPrompt


class Anthropic:
    """Answers the calls of one server."""

    def __init__(self, state: ServerState) -> None:
        self._state = state
        self._answering = Answering(state)

    async def messages(self, call: HttpCall) -> None:
        """A message."""
        parsed = await self._answering.read(call, MESSAGES, read_message, takes_images=True)
        name = self._answering.name(call, parsed, PREFIX)
        message = Message(name.id, public_name(self._state.model.name))
        if parsed.is_streamed:
            await self._answering.stream(call, parsed, MessageEvents(message), name)
        else:
            await self._answering.gather(call, parsed, WholeMessage(message))

    async def count_tokens(self, call: HttpCall) -> None:
        """The number of tokens of a message's prompt."""
        state = self._state
        reading, parsed = await read_fields(call, state, COUNT_TOKENS, read_message, takes_images=True)
        (request,) = parsed.requests

        def count() -> int:
            with paths_renamed(reading.caller_path):
                return self._count(request)

        cost = planning_bytes(request, renders_quickly=state.model.text.renders_quickly)
        n_tokens = await state.workers.run(count, cost)
        call.answer_with(dumps({"input_tokens": n_tokens}).encode())

    def _count(self, request: GenerationRequest) -> int:
        """The number of tokens of the prompt, with the tools that the choice leaves. May take long."""
        model = self._state.model
        prompt = model.with_tools(request).prompt
        assert isinstance(prompt, ChatPrompt)  # read_message() makes no other
        return sum(map(len, model.prompts.rendered(prompt).id_parts))
