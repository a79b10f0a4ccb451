"""A device fails under a generation: every reader learns the cause, however it leaves."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from imp_service import (
    ConstraintKind,
    ConstraintSpec,
    GenerationRequest,
    LanguageModel,
    SamplingOptions,
    StopOptions,
)
from imp_service.config import read_settings
from imp_service.core import DeviceError
from imp_service.generation import Generation
from imp_service.generation.warm_up import warm_up
from support.servers.served_models import scripted

FIRST = 300
FAULT = FIRST + 12
WHY = "the script makes the device fail at this token"


def breaking(token: int) -> LanguageModel:
    """Returns a model whose device fails when it evaluates the token."""
    served = scripted(script={"faulting_token": token})
    return LanguageModel(served.make(read_settings(None, served.settings), time.monotonic))


@pytest.fixture
def model() -> Iterator[LanguageModel]:
    with breaking(FAULT) as made:
        yield made


def request(**fields: object) -> GenerationRequest:
    stop = StopOptions(max_tokens=100, ignore_eos=True)
    return GenerationRequest([FIRST], SamplingOptions(temperature=0.0), stop, **fields)


def constrained(model: LanguageModel) -> Generation:
    """Returns a generation whose every token waits for a mask from this side."""
    return model.generate(request(constraint=ConstraintSpec(ConstraintKind.REGEX, r"[\s\S]*")))


def on_session(model: LanguageModel) -> Generation:
    """Returns a generation on a session that only it holds."""
    session = model.open(sampling=SamplingOptions(temperature=0.0))
    session.prefill([FIRST])
    return session.generate(GenerationRequest("", stop=StopOptions(max_tokens=100, ignore_eos=True)))


WAYS: dict[str, Callable[[LanguageModel], Generation]] = {
    "alone": lambda model: model.generate(request()),
    "constrained": constrained,
    "session": on_session,
}


@pytest.mark.parametrize("way", WAYS)
def test_lif_8_y04_a_generation_says_what_broke(model: LanguageModel, way: str) -> None:
    n_replies = 0
    with pytest.raises(DeviceError) as broke, WAYS[way](model) as generation:
        for _ in generation:
            n_replies += 1
    assert (broke.value.reason, broke.value.message) == ("DEVICE_FAULT", WHY)
    assert n_replies > 0
    with pytest.raises(DeviceError, match="the engine has stopped"):
        model.generate(request())


def test_lif_8_y04_leaving_a_generation_of_a_device_that_broke_is_no_error(model: LanguageModel) -> None:
    with model._runtime.client.together():
        generation, other = model.generate(request()), model.generate(request())
    with pytest.raises(DeviceError, match=WHY):
        list(generation)
    other.pause(True)
    other.close()


def test_lif_9_y04_a_warm_up_says_what_broke() -> None:
    with breaking(token=3) as model, pytest.raises(DeviceError, match=WHY):
        warm_up(model._runtime)
