"""Makes the fold of a generation from its request: how outputs become text, channels and stops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from imp_service.api.options import GenerationRequest, OutputOptions, SamplingOptions, seed_of
from imp_service.api.resume import Origin
from imp_service.generation.defaults import without_lists
from imp_service.generation.fold import GenerationFold, MakeStream
from imp_service.generation.output_stream import OutputStream
from imp_service.generation.prompt_images import ReadPrompt
from imp_service.generation.resume import Seam
from imp_service.generation.text_side import TextSide
from imp_service.text import StopRules, StopStrings, TextStream

if TYPE_CHECKING:
    from imp_service.text import ConstraintState


def make_fold(
    text: TextSide,
    request: GenerationRequest,
    sampling: SamplingOptions,
    prompt: ReadPrompt,
    *,
    origin: Origin | None = None,
    seams: Sequence[Seam] = (),
) -> GenerationFold:
    """The fold that turns the events of a generation into replies. `sampling` is in force.

    The last two: as for GenerationFold.
    """
    stop, output = request.stop, request.output
    rules = StopRules(StopStrings(stop.strings), stop.min_tokens, stop.include_match)
    program = None if request.constraint is None else text.compile(request.constraint)
    return GenerationFold(
        sampling=without_lists(sampling),
        prompt_ids=prompt.ids,
        media=prompt.images.spans,
        include_match=stop.include_match,
        output=output,
        make_stream=_parsed_streams(text, request, rules, seed_of(sampling), prompt.ids)
        if output.has_channels
        else _plain_streams(text, output, rules),
        constraints=[None if program is None else program.start() for _ in range(request.num_sequences)],
        origin=origin,
        seams=seams,
    )


def _plain_streams(text: TextSide, output: OutputOptions, rules: StopRules) -> MakeStream:
    follows_text = output.text or bool(rules.strings.strings)

    def make(index: int, constraint: ConstraintState | None) -> OutputStream:
        table = text.tokenizer.table
        stream = TextStream(table, rules, special_tokens=output.special_tokens) if follows_text else None
        return OutputStream(index, output, stream, constraint)

    return make


def _parsed_streams(
    text: TextSide, request: GenerationRequest, rules: StopRules, seed: int, prompt_ids: list[int]
) -> MakeStream:
    from imp_service.generation.parsed_stream import ParsedStream
    from imp_service.generation.tools import parse_plan
    from imp_service.text.channels.channel_stream import ChannelStream

    plan = parse_plan(request, text, seed, prompt_ids)
    table = text.channel_table if plan.dialect is text.dialect else text.calls_table
    shows_special = request.output.special_tokens

    def make(index: int, constraint: ConstraintState | None) -> OutputStream:
        channels = ChannelStream(table, plan, rules, sequence=index, special_tokens=shows_special)
        return ParsedStream(index, request.output, channels, constraint)

    return make
