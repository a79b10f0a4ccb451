"""The request for a prompt of the command line, to a model in this process."""

from argparse import Namespace
from typing import TYPE_CHECKING

from imp_service.cli.answer import ANSWER_TOKENS, CONTINUATION_TOKENS
from imp_service.cli.options.output import BUILT_IN_TOKENS
from imp_service.cli.options.sampling import given_sampling, read_constraint

if TYPE_CHECKING:
    from imp_service.api.options import GenerationRequest
    from imp_service.generation import ModelRuntime
    from imp_service.text import ChatPrompt, ConstraintSpec


def question(text: str, system: str | None) -> "ChatPrompt":
    """A conversation of one message."""
    from imp_service.text import ChatMessage, ChatPrompt

    first = [] if system is None else [ChatMessage("system", system)]
    return ChatPrompt((*first, ChatMessage("user", text)))


def sampled_request(model: "ModelRuntime", prompt: "str | ChatPrompt", arguments: Namespace) -> "GenerationRequest":
    """The request for `prompt`, text or chat, with the options of the command line."""
    from imp_service.api.options import GenerationRequest, SamplingOptions, StopOptions

    ids = model.prompt_ids(prompt, begins=True)
    max_tokens = arguments.max_tokens
    if max_tokens is None:
        bound = _most_tokens(model, is_text=isinstance(prompt, str))
        # No bound beyond the context: then the context ends the text, and the engine reports that.
        max_tokens = bound if len(ids) + bound <= model.max_context else None
    return GenerationRequest(
        ids,
        sampling=SamplingOptions(**given_sampling(arguments)),  # type: ignore[arg-type]
        stop=StopOptions(max_tokens=max_tokens),
        constraint=_constraint(arguments),
    )


def _most_tokens(model: "ModelRuntime", *, is_text: bool) -> int:
    """The length of an answer that nobody asked to be long."""
    from imp_service.cli.banner import is_built_in

    most = CONTINUATION_TOKENS if is_text else ANSWER_TOKENS
    most = BUILT_IN_TOKENS if is_built_in(model.config) else most
    return min(most, model.config.settings.limits.max_tokens or most)


def _constraint(arguments: Namespace) -> "ConstraintSpec | None":
    chosen = read_constraint(arguments)
    if chosen is None:
        return None
    from imp_service.text import ConstraintKind, ConstraintSpec

    return ConstraintSpec(ConstraintKind(chosen.kind), chosen.source, unbounded_whitespace=chosen.unbounded_whitespace)
