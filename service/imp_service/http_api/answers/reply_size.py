"""How large a reply can become: a request whose reply could be too large to hold is refused before it runs."""

from __future__ import annotations

from imp_service.api.errors import invalid
from imp_service.api.options import GenerationRequest
from imp_service.http_api.requests.generation import ParsedRequest
from imp_service.serving.served_model import ServedModel

# Bytes of a token's entry, and of one of its candidates, as JSON.
ENTRY_BYTES, CANDIDATE_BYTES = 128, 96


def check_size(parsed: ParsedRequest, request: GenerationRequest, n_prompt: int, served: ServedModel) -> None:
    """Raises FIELD_INVALID if log probabilities could take more than a reply may have."""
    output = request.output
    per_token = ENTRY_BYTES + CANDIDATE_BYTES * output.top_logprobs
    if parsed.returns_token_ids:
        # A completion has each entry twice: in the older form and in the form of chats.
        per_token *= 2
    n_tokens = n_prompt if output.prompt_logprobs else 0
    if output.logprobs and (parsed.repeats_answer or not parsed.is_streamed):
        n_tokens += request.num_sequences * _most_outputs(request, n_prompt, served)
    most = served.settings.limits.max_message_bytes
    if n_tokens * per_token > most:
        field = parsed.reading.caller_path("output.top_logprobs")
        words = (
            f"the reply could have {n_tokens * per_token} bytes, at most limits.max_message_bytes = {most} can be sent"
        )
        raise invalid(field, words)


def _most_outputs(request: GenerationRequest, n_prompt: int, served: ServedModel) -> int:
    room = max(0, served.max_context - n_prompt + 1)
    return room if request.stop.max_tokens is None else min(room, request.stop.max_tokens)
