"""The plan of a generation: its prompt as tokens, its options in force, and where it goes on if it is resumed."""

from __future__ import annotations

from imp_service.api.errors import invalid
from imp_service.api.options import DENSE, GenerationRequest, SamplingOptions, SparsePrefillOptions
from imp_service.api.resume import Origin
from imp_service.generation.fingerprint import CPU
from imp_service.generation.make_fold import make_fold
from imp_service.generation.prompt_images import ReadPrompt
from imp_service.generation.resume import (
    Seam,
    origin_of,
    request_digest,
    require_possible,
    require_server,
    seams_of,
    with_seed_of,
)
from imp_service.generation.run import GenerationPlan, returns_of
from imp_service.generation.runtime import ModelRuntime, cache_scope
from imp_service.tables import KEEP_ALL


def plan_generation(
    runtime: ModelRuntime, request: GenerationRequest, *, payer: str = "", must_fit: bool = True
) -> GenerationPlan:
    """A generation ready to be submitted. The arguments are those of ModelRuntime.plan()."""
    runtime.embedder.require_generation()
    resume, options = request.resume, runtime.options
    if resume is not None:
        require_server(resume, runtime.fingerprint.digest)
    created = int(runtime.wall()) if resume is None else resume.origin.created
    request = runtime.with_tools(request)
    hidden: list[bool] = []
    read = runtime.prompts.read(request.prompt, begins=True, at=created, on_hidden=lambda: hidden.append(True))
    prompt_ids, images = read.ids, read.images
    if not prompt_ids:
        raise invalid("prompt", "has no token")
    sampling = options.sampling(with_seed_of(request.sampling, resume))
    resolved = options.core_sampling(sampling)
    sequences = [runtime.client.next_sequence() for _ in range(request.num_sequences)]
    limits = options.limits(request.stop, read.ends, must_fit=must_fit)
    max_draft_tokens, drafters = options.guessing(request.speculation)
    sparse = options.sparse_prefill(request.sparse_prefill)
    budget = options.reasoning_budget(request, prompt_ids)
    origin = _origin_of(runtime, request, read, sampling, sparse, created=created)
    seams = _seams_of(runtime, request, read)
    told = [(list(seam.ids), seam.is_finished) for seam in seams]
    returns = returns_of(request.output, again_from=len(prompt_ids) if seams else None)

    def submit(ticket: int) -> None:
        runtime.client.engine.generate(
            ticket,
            sequences[0],
            prompt_ids,
            sampling=resolved,
            priority=request.priority,
            tenant=payer or request.tenant,
            cache_scope=cache_scope(request.tenant, request.cache.salt),
            bypass_prefix=request.cache.bypass_prefix,
            limits=limits,
            returns=returns,
            budget=budget,
            constrained=request.constraint is not None,
            max_draft_tokens=max_draft_tokens,
            sparse_policy=sparse.policy,
            sparse_keep=KEEP_ALL if sparse.keep is None else max(1, round(sparse.keep * KEEP_ALL)),
            sparse_backbone=round((sparse.backbone or 0) * KEEP_ALL),
            drafters=drafters,
            siblings=sequences[1:],
            media=images.media,
            told=told,
        )

    if images.plans and must_fit:
        runtime.prompts.require_outputs(len(prompt_ids), request.stop.max_tokens)
    return GenerationPlan(
        make_fold(runtime.text, request, sampling, read, origin=origin, seams=seams),
        sequences,
        submit,
        len(prompt_ids),
        request.stop.time_limit,
        sparse_share=None if sparse.keep is None else max(sparse.keep, sparse.backbone or 0),
        hides_tools=bool(hidden),
        images=images,
    )


def _origin_of(
    runtime: ModelRuntime,
    request: GenerationRequest,
    prompt: ReadPrompt,
    sampling: SamplingOptions,
    sparse: SparsePrefillOptions,
    *,
    created: int,
) -> Origin | None:
    """The origin of a request; None if no other one can go on with its outputs. Raises RESUME_MISMATCH."""
    why_none = why_no_origin(runtime, sparse)
    if why_none and request.resume is not None:
        raise invalid("resume", f"given, expected none: {why_none}")
    if why_none or not (request.resume or runtime.has_fingerprint):
        return None
    digest = request_digest(request, prompt, sampling, _most_outputs(runtime, request, prompt))
    return origin_of(request, runtime.fingerprint.digest, created, digest, sampling)


def why_no_origin(runtime: ModelRuntime, sparse: SparsePrefillOptions) -> str:
    """Why no other server can go on with what is generated here; empty if one can."""
    settings = runtime.config.settings
    if settings.device.kind != CPU and not settings.model.overrides.deterministic:
        return "model.overrides.deterministic is off, so the same tokens have other bits in another batch"
    if (sparse.policy or DENSE) != DENSE:
        return "with sparse_prefill the tokens depend on the time and the cache"
    return ""


def _seams_of(runtime: ModelRuntime, request: GenerationRequest, prompt: ReadPrompt) -> list[Seam]:
    """Where a resumed request goes on. Raises FieldsInvalid for outputs that it cannot have."""
    if request.resume is None:
        return []
    stop, seams = request.stop, seams_of(request.resume)
    ends = () if stop.ignore_eos else (*runtime.eos_tokens, *prompt.ends)
    stops = frozenset((*stop.token_ids, *ends))
    require_possible(seams, _most_outputs(runtime, request, prompt), stops, stop.min_tokens)
    return seams


def _most_outputs(runtime: ModelRuntime, request: GenerationRequest, prompt: ReadPrompt) -> int:
    return runtime.options.most_outputs(request.stop, runtime.prompts.room_after(len(prompt.ids)))
