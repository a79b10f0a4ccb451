"""A session goes on that a server lost: the caller names its origin, and the engine draws its pending token again."""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict
from typing import TYPE_CHECKING

from imp_service.api.errors import invalid
from imp_service.api.options import SamplingOptions, SparsePrefillOptions, seed_of
from imp_service.api.resume import REQUEST, REQUEST_DIGITS, SERVER, Origin, SessionResume
from imp_service.generation.plan_generation import why_no_origin
from imp_service.generation.resume import mismatch

if TYPE_CHECKING:
    from imp_service.api.replies import StepOutput
    from imp_service.generation.runtime import ModelRuntime


def session_origin(model: ModelRuntime, sampling: SamplingOptions) -> Origin | None:
    """What decides the tokens of a session with this sampler besides its calls; None if it cannot go on elsewhere."""
    if why_no_origin(model, SparsePrefillOptions()):
        return None
    unset = asdict(model.options.sampling(SamplingOptions(seed=0)))
    digest = hashlib.sha256(json.dumps(unset, sort_keys=True, default=repr).encode()).hexdigest()[:REQUEST_DIGITS]
    return Origin(model.fingerprint.digest, digest, seed_of(sampling), int(model.wall()))


def require_session_origin(model: ModelRuntime, resume: SessionResume) -> None:
    """Raises RESUME_MISMATCH if the session began where tokens are drawn differently."""
    why_none = why_no_origin(model, SparsePrefillOptions())
    here = session_origin(model, SamplingOptions(seed=resume.origin.seed))
    if here is None:
        raise invalid("resume", f"set, expected none: {why_none}")
    if resume.origin.server != here.server:
        raise mismatch(SERVER)
    if resume.origin.request != here.request:
        raise mismatch(REQUEST)


def require_pending(resume: SessionResume | None, output: StepOutput) -> None:
    """Raises RESUME_MISMATCH if the engine has drawn another pending token than the session had."""
    if resume is not None and resume.token_id is not None and resume.token_id != output.token_id:
        raise mismatch("resume.token_id")


def require_text_from(resume: SessionResume | None, first: int, end: int) -> None:
    """Raises FIELD_INVALID unless the text begins in the tokens from `first` to `end`, or with the next output."""
    if resume is not None and resume.text_from is not None and not first <= resume.text_from <= end + 1:
        raise invalid("resume.text_from", f"{resume.text_from}, expected {first} to {end + 1}")
