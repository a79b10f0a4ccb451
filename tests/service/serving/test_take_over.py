"""A resumed request ends the calls of the stream that it goes on with, and no other (RSM-6)."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from imp_service.api.resume import Origin
from imp_service.serving.running_requests import RunningRequests

MINE = Origin("0" * 16, "1" * 32, 7, 1)


@pytest.mark.parametrize(
    ("tenant", "resumed_by", "origin", "is_ended"),
    [
        ("a", "mine", MINE, True),
        ("b", "mine", MINE, False),
        ("a", "other", MINE, False),
        ("a", "", MINE, False),
        ("a", "mine", Origin("0" * 16, "1" * 32, 8, 1), False),
        ("a", "mine", None, False),
    ],
)
def test_rsm_6_only_the_same_stream_is_taken_over(
    tenant: str, resumed_by: str, origin: Origin | None, *, is_ended: bool
) -> None:
    """A stranger of the same tenant that chose the same id has another origin."""
    requests, ended = RunningRequests(lambda: 0.0), list[Exception]()
    with ExitStack() as held:
        earlier = held.enter_context(requests.register("mine", tenant, "", ended.append, shares_id=True))
        earlier.resumed_by, earlier.origin = resumed_by, origin
        resumed = held.enter_context(requests.register("mine", "a", "", ended.append, shares_id=True))
        resumed.resumed_by, resumed.origin = "mine", MINE
        requests.take_over(resumed)
    assert bool(ended) is is_ended
