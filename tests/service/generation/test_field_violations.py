"""FIELD_INVALID names every wrong field, as data and in its message."""

import pytest

from imp_service.api.errors import FieldsInvalid, invalid
from imp_service.api.facts import findings
from imp_service.api.options import GenerationRequest, SamplingOptions, StopOptions
from imp_service.core import Error, InvalidArgument
from imp_service.generation.limits import ENGINE, refuse_findings


def test_rpc_6_all_violations_are_reported_at_once() -> None:
    request = GenerationRequest(
        "a",
        sampling=SamplingOptions(temperature=101, top_p=0),
        stop=StopOptions(strings=["a", ""]),
        num_sequences=9,
    )
    with pytest.raises(FieldsInvalid) as raised:
        refuse_findings(findings(request, ENGINE))
    paths = [violation.path for violation in raised.value.violations]
    assert paths == ["sampling.temperature", "sampling.top_p", "stop.strings[1]", "num_sequences"]
    assert isinstance(raised.value, InvalidArgument) and isinstance(raised.value, Error)
    assert raised.value.reason == "FIELD_INVALID"
    assert raised.value.message.count("; ") == 3
    assert str(raised.value) == f"FIELD_INVALID: {raised.value.message}"


def test_an_error_of_one_field_has_its_path() -> None:
    error = invalid("num_sequences", "2, expected 1: a session has one")
    assert [(v.path, v.message) for v in error.violations] == [("num_sequences", "2, expected 1: a session has one")]
