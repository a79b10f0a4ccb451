"""The rows of the options of imp, and of other fields that mean the same in every API."""

from __future__ import annotations

from collections.abc import Mapping

from imp_service.api.options import (
    CacheOptions,
    ChunkOptions,
    DryOptions,
    GenerationRequest,
    SamplingOptions,
    SparsePrefillOptions,
    SpeculationOptions,
    StopOptions,
)
from imp_service.http_api.requests import values
from imp_service.http_api.requests.resuming import FIELD, read_resuming
from imp_service.http_api.requests.rows import Sets, Table, rows_of

SAMPLING: Table = {**rows_of(SamplingOptions, "sampling"), **rows_of(DryOptions, "sampling.dry")}
STOP: Table = rows_of(StopOptions, "stop")
REQUEST: Mapping[str, Sets] = rows_of(GenerationRequest)
# The number of choices, which not every API has.
CHOICES = "n"
SERVING: Table = {
    "model": Sets(values.text, "", "a served name; empty or absent: the served model"),
    "cache_prompt": Sets(values.flag, "", "false computes the whole prompt; its blocks are still cached"),
    **rows_of(CacheOptions, "cache"),
    **rows_of(SpeculationOptions, "speculation"),
    **rows_of(SparsePrefillOptions, "sparse_prefill"),
    **{name: row for name, row in REQUEST.items() if name != CHOICES},
}
STREAM: Table = {
    **rows_of(ChunkOptions, "output"),
    "stream": Sets(values.flag, "", "sends the answer as server-sent events"),
}
RESUME: Table = {
    FIELD: Sets(read_resuming, FIELD, "`{}` asks for marks in the stream; with what they say, the answer goes on"),
}
# What a model's chat template and its image processor take.
OF_MODEL: Table = {
    "chat_template_kwargs": Sets(values.members, "chat.template_kwargs_json", "variables of the model's chat template"),
    "mm_processor_kwargs": Sets(
        values.members, "", "of images of any size: `min_pixels` and `max_pixels`, or `max_soft_tokens`"
    ),
}
OWN_CONSTRAINTS: Table = {
    "structured_outputs": Sets(values.members, "", "one of `json`, `regex`, `choice`, `grammar`, `json_object`"),
    "grammar": Sets(values.text, "", "a grammar in GBNF"),
}
