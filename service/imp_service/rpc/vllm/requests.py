"""Checks VllmEngine's GenerateRequest, and converts it to that of imp.v1.

A field without presence is 0 if the caller has not set it. 0 is no valid value of `top_p`,
`repetition_penalty` and `n`, so it means unset: the model's default, or one sequence. 0 switches `top_k` and `min_p`
off, as in vLLM: a gateway fills in the defaults that GetModelInfo reports.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

from imp_service.api.errors import Violation
from imp_service.api.options import TOP_LOGPROBS, GenerationRequest
from imp_service.pb import inference_pb2, types_pb2
from imp_service.rpc.imp_v1.requests.check_request import read_and_check
from imp_service.rpc.vllm.fields import PARAMS, REFUSED, caller_path
from imp_service.serving.rules import check
from imp_service.serving.rules.check import Finding
from imp_service.serving.served_model import ServedModel
from imp_service.serving.server_state import ServerState
from imp_service.tables import LIMITS

# Means no seed, as in vLLM.
NO_SEED = -1
# Options for which 0 means unset.
UNSET_AT_ZERO = ("top_p", "repetition_penalty", "frequency_penalty", "presence_penalty", "n")


async def checked(
    request: Any, translated: inference_pb2.GenerateRequest, n_bytes: int, state: ServerState
) -> tuple[GenerationRequest, ServedModel]:
    """Raises all violations, with the caller's field names. Checks on a worker if the request is large."""

    def check_both(served: ServedModel) -> GenerationRequest:
        generation, found = read_and_check(translated, served)
        check.refuse_findings(
            chain(
                _findings(request, served),
                (check.renamed(each, caller_path) for each in found if not _is_about_input(each)),
            )
        )
        return generation

    return await check.checked(check_both, n_bytes, state)


def translate(request: Any) -> inference_pb2.GenerateRequest:
    """The same request in imp.v1. Values that no field of imp.v1 can hold are left out: checked() refuses them."""
    found = inference_pb2.GenerateRequest(request_id=request.request_id, output=types_pb2.OutputOptions(text=False))
    match request.WhichOneof("input"):
        case "tokenized":
            found.token_ids.ids.extend(request.tokenized.input_ids)
            found.token_ids.SetInParent()
        case "text":
            found.text = request.text
    if request.HasField("sampling_params"):
        params = request.sampling_params
        found.num_sequences = 1
        _set_params(params, found)
        _output(params, found.output)
        _constraint(params, found)
    return found


def _set_params(params: Any, found: inference_pb2.GenerateRequest) -> None:
    """The parameters that have a counterpart. Those that no field of imp.v1 can hold are left out."""
    for theirs, ours in PARAMS.items():
        group, _, name = ours.rpartition(".")
        message: Any = getattr(found, group) if group else found
        value = getattr(params, theirs)
        if theirs == "logit_bias":
            message.logit_bias.update({token: bias for token, bias in value.items() if token >= 0})
        elif params.DESCRIPTOR.fields_by_name[theirs].is_repeated:
            getattr(message, name).extend(value)
        elif _is_set(params, theirs, value):
            setattr(message, name, value)


def _is_set(params: Any, name: str, value: float) -> bool:
    if params.DESCRIPTOR.fields_by_name[name].has_presence:
        return bool(params.HasField(name)) and (name != "seed" or value >= 0)
    return name not in UNSET_AT_ZERO or value != 0


def _output(params: Any, output: types_pb2.OutputOptions) -> None:
    """If both kinds of log probabilities are requested, both get the larger number of candidates; replies cut each."""
    output.special_tokens = not params.skip_special_tokens
    output.logprobs = params.HasField("logprobs")
    output.prompt_logprobs = output.prompt_token_ids = params.HasField("prompt_logprobs")
    asked = max(params.logprobs, params.prompt_logprobs)
    output.top_logprobs = min(max(asked, 0), LIMITS.top_logprobs)


def _constraint(params: Any, found: inference_pb2.GenerateRequest) -> None:
    match params.WhichOneof("constraint"):
        case "json_schema":
            found.constraint.json_schema = params.json_schema
        case "regex":
            found.constraint.regex = params.regex
        case "grammar":
            found.constraint.gbnf = params.grammar
        case "json_object" if params.json_object:
            found.constraint.json_object.SetInParent()
        case "choice":
            found.constraint.choices.values.extend(params.choice.choices)
            found.constraint.choices.SetInParent()


def _findings(request: Any, served: ServedModel) -> Iterator[Finding]:
    """Violations of fields that translate() does not pass on unchanged."""
    yield from _refused(request, "")
    if request.WhichOneof("input") is None:
        yield Violation("input", "not set, expected tokenized or text")
    params, path = request.sampling_params, "sampling_params"
    yield from _refused(params, f"{path}.")
    if params.seed < NO_SEED:
        yield Violation(f"{path}.seed", f"{params.seed}, expected a seed from 0, or {NO_SEED} for none")
    for name in ("logprobs", "prompt_logprobs"):
        if params.HasField(name):
            yield from TOP_LOGPROBS.check(getattr(params, name), f"{path}.{name}", served)
    for token in params.logit_bias:
        if token < 0:
            yield Violation(f"{path}.logit_bias[{token}]", "expected a token id")


def _refused(message: Any, path: str) -> Iterator[Violation]:
    for field, value in message.ListFields():
        why = REFUSED.get(path + field.name)
        is_only_rank = field.name == "data_parallel_rank" and value == 0
        if why is not None and not is_only_rank:
            yield Violation(path + field.name, f"set, but {why}")


def _is_about_input(finding: Finding) -> bool:
    """A missing prompt is reported by _findings()."""
    return isinstance(finding, Violation) and finding.path == "prompt"
