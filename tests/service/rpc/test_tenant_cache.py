"""One tenant's cached prompts cannot be found, timed or read by another tenant."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from imp_service.pb import inference_pb2 as pb
from imp_service.pb import types_pb2
from support.calls.generations import streamed
from support.calls.session_calls import GREEDY, SessionCalls
from support.servers.served import Served, ask, serve
from support.servers.served_models import built_in, scripted

BLOCK = 16
LENGTH = 5 * BLOCK
FOUND = LENGTH - BLOCK  # for a prompt of whole blocks the last token's block is evaluated
# Tenant and salt; None leaves out the metadata or the field.
Scope = tuple[str | None, str | None]


@pytest.fixture(scope="module")
def served() -> Iterator[Served]:
    with serve("features.logits=true", model=scripted(n_blocks=2000)) as server:
        yield server


def by_generate(served: Served, prompt: list[int], scope: Scope) -> int:
    tenant, salt = scope
    cache = types_pb2.CacheOptions() if salt is None else types_pb2.CacheOptions(salt=salt)
    result = streamed(served, ask(prompt, 1, cache=cache), metadata=() if tenant is None else (("imp-tenant", tenant),))
    assert result.usage.cached_prompt_tokens == result.started.cached_prompt_tokens
    return result.started.cached_prompt_tokens


def by_prefill(served: Served, prompt: list[int], scope: Scope) -> int:
    tenant, salt = scope
    calls = SessionCalls(served, tenant or "")
    cache = None if salt is None else types_pb2.CacheOptions(salt=salt)
    opened = calls.prefill(prompt, cache=cache)
    assert calls.release(opened.session_id)
    return opened.cached_tokens


WAYS = pytest.mark.parametrize("way", [by_generate, by_prefill])


def prompts() -> Iterator[list[int]]:
    """Yields prompts, each with a different first token."""
    for i in range(1500):
        yield [300 + i, *(300 + (7 * i + 11 * k) % 1500 for k in range(LENGTH - 1))]


PROMPTS = prompts()


@pytest.mark.few(4)
@WAYS
@pytest.mark.parametrize(
    ("one", "other", "shared"),
    [
        (("a", None), ("b", None), False),
        (("a", "salt"), ("b", "salt"), False),
        (("a", "salt"), ("a", "sale"), False),
        (("a", "salt"), ("a", None), False),
        (("a", "b"), ("ab", None), False),
        (("a", None), (None, "a"), False),
        (("a", None), (None, None), False),
        ((None, "salt"), (None, None), False),
        (("a", "salt"), ("a", "salt"), True),
        (("a", None), ("a", ""), True),
        ((None, None), (None, ""), True),
        ((None, "salt"), (None, "salt"), True),
    ],
)
def test_n03_pfx_5_a_salt_is_private_to_its_tenant_and_no_salt_is_the_empty_salt(
    served: Served, way: Callable[[Served, list[int], Scope], int], one: Scope, other: Scope, shared: bool
) -> None:
    for first, second in ((one, other), (other, one)):
        prompt = next(PROMPTS)
        assert way(served, prompt, first) == 0
        assert way(served, prompt, second) == (FOUND if shared else 0)


@pytest.mark.few(1)
@WAYS
def test_n01_a_prompt_of_another_tenants_is_as_much_work_as_one_that_nobody_sent(
    served: Served, way: Callable[[Served, list[int], Scope], int]
) -> None:
    """A prompt's cost follows from the tokens evaluated: for B's guesses, right or wrong, these are all tokens."""

    def rows(prompt: list[int], tenant: str) -> tuple[int, int]:
        before = served.stats()
        cached = way(served, prompt, (tenant, None))
        served.wait_for_rest()
        after = served.stats()
        return cached, after.n_prefill_rows - before.n_prefill_rows

    of_a, of_hits, of_misses = set(), set(), set()
    for _ in range(40):
        secret, random = next(PROMPTS), next(PROMPTS)
        assert rows(secret, "a") == (0, LENGTH)
        of_hits.add(rows(secret, "b"))
        of_misses.add(rows(random, "b"))
        of_a.add(rows(secret, "a"))
    assert of_hits == of_misses == {(0, LENGTH)}
    # The owner's repeat is cheaper: a hit would be visible.
    assert of_a == {(FOUND, LENGTH - FOUND)}


def everything(served: Served, tenant: str) -> list[bytes]:
    """Returns all that a caller can read of a short prompt and its continuation, except times and names."""
    request = ask("Once upon a time", 8)
    request.sampling.seed, request.output.max_chunk_tokens = 1, 1
    request.output.logprobs, request.output.top_logprobs, request.output.prompt_logprobs = True, 20, True
    metadata = (("imp-tenant", tenant),)
    found = []
    for message in served.inference.Generate(request, metadata=metadata):
        if message.WhichOneof("event") == "chunk":
            found.append(message.chunk.SerializeToString(deterministic=True))
        elif message.WhichOneof("event") == "started":
            message.started.ClearField("request_id")
            found.append(message.started.SerializeToString(deterministic=True))
    calls = SessionCalls(served, tenant)
    options = pb.StepOptions(logits=True, top_logprobs=20, scores=True)
    opened = calls.prefill([300, 301, 302], sampling=GREEDY, step=options)
    outputs = [opened.output, calls.step(opened.session_id, [5, 6, 7], step=options)]
    assert calls.release(opened.session_id)
    return [*found, *(output.SerializeToString(deterministic=True) for output in outputs)]


@pytest.mark.long
def test_n04_blocks_that_another_tenant_filled_and_freed_are_never_read() -> None:
    """A's text fills the whole cache three times. B's numbers then equal those of a fresh server, bit for bit."""
    settings = ("features.logits=true", "kv.bytes=1MiB")
    with serve(*settings, model=built_in()) as fresh:
        expected = everything(fresh, "b")
    with serve(*settings, model=built_in()) as served:
        n_blocks = served.n_blocks
        calls = SessionCalls(served, "a")
        n_filled = 0
        while n_filled < 3 * n_blocks:
            length = min(served.state.model.max_context - 1, 20 * BLOCK)
            opened = calls.prefill([300 + (n_filled + 13 * i) % 1500 for i in range(length)])
            assert opened.cached_tokens == 0
            assert calls.release(opened.session_id)
            n_filled += -(-length // BLOCK)
        served.wait_for_rest()
        assert served.stats().blocks_cached > n_blocks / 2
        assert everything(served, "b") == expected
