"""The run of one group of a decision: the outputs of each sequence are given, and their rows of logits are its replies.

The sequences share the prompt, which is evaluated once, whatever the blocks of the cache are.
"""

from __future__ import annotations

from collections import deque

from imp_service.api.options import GenerationRequest, OutputOptions
from imp_service.api.replies import Chunk, Reply
from imp_service.core import CoreSampling, DraftedEvent, FinishedEvent, RunLimits, RunReturns, StartedEvent, TokenEvent
from imp_service.generation.decision import Group
from imp_service.generation.defaults import without_lists
from imp_service.generation.fold import GenerationFold
from imp_service.generation.output_stream import OutputStream
from imp_service.generation.prompt_images import ReadPrompt
from imp_service.generation.run import GenerationPlan
from imp_service.generation.runtime import ModelRuntime, cache_scope
from imp_service.generation.step import row_bytes
from imp_service.tables import LIMITS

_OUTPUT = OutputOptions(text=False)


class RowsFold(GenerationFold):
    """Its chunks have no token, but the row of which an output is drawn."""

    def __init__(self, request: GenerationRequest, prompt: ReadPrompt) -> None:
        super().__init__(
            sampling=without_lists(request.sampling),
            prompt_ids=prompt.ids,
            media=prompt.images.spans,
            include_match=False,
            output=_OUTPUT,
            make_stream=lambda index, _: OutputStream(index, _OUTPUT, None, None),
            constraints=[None] * request.num_sequences,
        )
        self._rows: deque[Chunk] = deque()

    def feed(self, event: StartedEvent | TokenEvent | DraftedEvent | FinishedEvent) -> bool:
        if type(event) is not TokenEvent:
            return super().feed(event)
        self._rows.append(Chunk(event.stream, event.output, [], "", [], [], logits=row_bytes(event.logits)))
        return False

    def is_reply_due(self, max_tokens: int) -> bool:
        return bool(self._rows) or super().is_reply_due(max_tokens)

    def next_reply(self, max_tokens: int | None = None) -> Reply | None:
        return self._rows.popleft() if self._rows else super().next_reply(max_tokens)


def plan_rows(runtime: ModelRuntime, request: GenerationRequest, group: Group, *, payer: str = "") -> GenerationPlan:
    """A run ready to be submitted. `group` has the outputs of each sequence. May be called from any thread."""
    read = runtime.prompts.read(request.prompt, begins=True)
    client, n_most = runtime.client, max(map(len, group))
    sequences = [client.next_sequence() for _ in group]

    def submit(ticket: int) -> None:
        engine = client.engine
        with client.together():
            engine.generate(
                ticket,
                sequences[0],
                read.ids,
                sampling=CoreSampling(temperature=0.0),
                priority=request.priority,
                tenant=payer or request.tenant,
                cache_scope=cache_scope(request.tenant, request.cache.salt),
                bypass_prefix=request.cache.bypass_prefix,
                limits=RunLimits(max_outputs=n_most, ends_at_eos=False, must_fit=True),
                returns=RunReturns(logits=True),
                constrained=True,
                siblings=sequences[1:],
                media=read.images.media,
            )
            for sequence, outputs in zip(sequences, group, strict=True):
                for i, token in enumerate(outputs):
                    engine.mask(ticket, sequence, i, _only(token, runtime.vocab_size))
                if len(outputs) < n_most:
                    engine.mask(ticket, sequence, len(outputs), end=True)

    return GenerationPlan(
        RowsFold(request, read), sequences, submit, len(read.ids), request.stop.time_limit, images=read.images
    )


def most_sequences(runtime: ModelRuntime, n_prompt: int, n_outputs: int) -> int:
    """The most sequences of one run after a prompt: so many fit into the queue, a step and the cache."""
    scheduler, core = runtime.config.settings.scheduler, runtime.core
    block = core.kv_block_tokens
    n_shared, n_each = n_prompt // block, -(-(n_prompt + n_outputs) // block) - n_prompt // block
    n_by_blocks = (core.n_blocks - n_shared) // max(1, n_each)
    n_by_states = core.n_state_slots - 1 if core.n_state_slots else LIMITS.run_sequences
    most = min(LIMITS.run_sequences, scheduler.max_running, scheduler.max_waiting, n_by_blocks, n_by_states)
    return max(1, most)


def _only(token: int, vocab_size: int) -> bytes:
    """The mask that allows one token."""
    mask = bytearray(-(-vocab_size // 32) * 4)
    mask[token // 8] = 1 << token % 8
    return bytes(mask)
