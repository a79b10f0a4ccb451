"""The core's tables and their copies in the service have the same ranges and names."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields

import numpy as np
import pytest

from imp_service import _core, _testing
from imp_service.api.float32 import shortest
from imp_service.api.options import DryOptions, SamplingOptions
from imp_service.config.kinds import UnfitError, ValueKind
from imp_service.config.overrides import DefaultSampling
from imp_service.config.settings import TABLE
from imp_service.config.table import Key, find, nodes_of
from imp_service.core import InvalidArgument
from imp_service.generation.limits import BOUNDS
from imp_service.pb import types_pb2
from imp_service.tables import DRY_FIELDS, ENGINE_FIELDS, SAMPLER_FIELDS
from support.engine.script_engine import ScriptEngine


def names_of(options: type) -> set[str]:
    return {field.name for field in fields(options)}


def test_rpc_4_a_samplers_fields_are_those_of_the_core() -> None:
    of_sampler, of_dry = {*SAMPLER_FIELDS, "logit_bias", "seed", "dry"}, {*DRY_FIELDS, "breakers"}
    assert names_of(SamplingOptions) == of_sampler == set(types_pb2.SamplingOptions.DESCRIPTOR.fields_by_name)
    assert names_of(DryOptions) == of_dry == set(types_pb2.DryOptions.DESCRIPTOR.fields_by_name)
    assert names_of(DefaultSampling) == set(SAMPLER_FIELDS)


def takes(check: Callable[[float], object], refusal: type[Exception]) -> Callable[[float], bool]:
    def is_taken(value: float) -> bool:
        try:
            check(value)
        except refusal:
            return False
        return True

    return is_taken


def around(ends: Sequence[float]) -> Iterator[float]:
    """Yields each end and its two neighbouring 32-bit floats, which the wire and the core use."""
    for end in map(np.float32, ends):
        yield from (np.nextafter(end, np.float32(-np.inf)), end, np.nextafter(end, np.float32(np.inf)))


@pytest.mark.parametrize("name", SAMPLER_FIELDS)
def test_cfg_1_smp_14_imp_conf_requests_and_the_core_take_the_same_values(name: str) -> None:
    field, engine = SAMPLER_FIELDS[name], ScriptEngine()
    node = nodes_of(DefaultSampling)[name]
    assert isinstance(node, Key)
    kind: ValueKind[object] = node.kind
    in_conf = takes(kind.read, UnfitError)
    in_core = takes(lambda v: engine.open(sampling=_core.SamplingOptions(**{field.keyword: v})), InvalidArgument)
    ends = [end for end in (field.low, field.high) if math.isfinite(end)]
    values = [int(end) + i for end in ends for i in (-1, 0, 1)] if field.is_whole else [*map(shortest, around(ends))]
    for value in values:
        in_request = not list(BOUNDS[name].check(name, value))
        assert (in_conf(value), in_core(value)) == (in_request, in_request), value
    assert in_conf(values[1]) != field.above


POOL = {"n_blocks": 64, "max_context": 256, "max_running": 8}


@pytest.mark.parametrize("name", ENGINE_FIELDS)
def test_cfg_1_each_option_of_the_engine_is_a_key_with_its_range(name: str) -> None:
    field = ENGINE_FIELDS[name]
    node = find(TABLE, tuple(field.key.split(".")))
    assert isinstance(node, Key) and node.text == field.meaning
    if isinstance(field.default, bool):
        return
    for value in (field.low - 1, field.high + 1):
        given = value if isinstance(field.default, float) else int(value)
        with pytest.raises(InvalidArgument, match=f"^FIELD_INVALID: {name}: ") as raised:
            _testing.ThreadedEngine(_testing.Script("hash"), _core.EngineOptions(**{**POOL, name: given}))
        assert raised.value.details == {"field": name}


CALLS: Mapping[str, Callable[[], object]] = {
    "device": lambda: _core.kernels("tpu"),
    "weight type": lambda: _core.explain("q9", 32, 32),
    "kind": lambda: ScriptEngine().open(kind="dream"),
}


@pytest.mark.parametrize("field", CALLS)
def test_an_error_of_a_field_names_it_as_data(field: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^FIELD_INVALID: {field}: ") as raised:
        CALLS[field]()
    assert raised.value.details == {"field": field}
