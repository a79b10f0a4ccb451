"""The access log: one line for each call, without prompts and answers."""

from imp_service.telemetry.call_record import CallFacts
from imp_service.telemetry.log import Log
from imp_service.telemetry.log_entry import Field


class AccessLog:
    """Writes the line at a call's end."""

    def __init__(self, log: Log, model: str) -> None:
        self._log = log
        # The served name; set when the model is known.
        self.model = model

    def __call__(self, facts: CallFacts) -> None:
        """Logs every finished call. Lines of other outcomes are limited, since a client can cause them at will.

        Health checks are logged at debug, unless they are refused or fail.
        """
        fields = access_fields(facts, self.model)
        if facts.method.is_health and facts.outcome in ("finished", "cancelled", "timed_out"):
            self._log.debug(f"call {facts.outcome.replace('_', ' ')}", message="", **fields)
        elif facts.outcome == "finished":
            self._log.info("call finished", message="", **fields)
        elif facts.outcome == "failed":
            self._log.warning("call failed", message="", **fields)
        else:
            self._log.notice(f"call {facts.outcome.replace('_', ' ')}", message="", **fields)


def access_fields(facts: CallFacts, model: str) -> dict[str, Field]:
    """The fields of the line, in their order."""
    fields: dict[str, Field] = {
        "id": facts.request_id,
        "tenant": facts.tenant,
        "model": model,
        "method": facts.method.name if facts.method.is_http else f"{facts.method.service}/{facts.method.name}",
        "peer": facts.peer,
        "code": facts.code,
    }
    if facts.reason:
        fields["reason"] = facts.reason
    if facts.reasons:
        fields["finish"] = ",".join(facts.reasons)
    fields["seconds"] = facts.seconds
    if facts.n_prompt or facts.n_output:
        fields |= {
            "prompt_tokens": facts.n_prompt,
            "cached_tokens": facts.n_cached,
            "output_tokens": facts.n_output,
        }
    if facts.n_resumed:
        fields["resumed_tokens"] = facts.n_resumed
    if facts.n_inputs:
        fields["inputs"] = facts.n_inputs
    if facts.sparse is not None and facts.sparse.is_sparse:
        fields["sparse_prefill"] = f"{facts.sparse.selected_tokens}/{facts.sparse.scored_tokens}"
    elif facts.sparse is not None:
        fields["sparse_prefill"] = f"dense:{facts.sparse.reason}"
    if facts.n_drafted:
        fields |= {"drafted": facts.n_drafted, "accepted": facts.n_accepted}
    if facts.first_token_seconds is not None:
        fields["first_token"] = facts.first_token_seconds
    if facts.timings is not None:
        times = facts.timings
        fields |= {"queue": times.queue, "prefill": times.prefill, "decode": times.decode}
        if times.encode:
            fields["encode"] = times.encode
    return fields
