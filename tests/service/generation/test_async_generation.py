"""Generations read by asyncio tasks: the tokens are the same, the loop goes on, and a cancelled task leaves nothing."""

import asyncio
import gc
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import imp_service
from imp_service import AsyncGeneration, Chunk, LanguageModel
from imp_service.config import read_settings
from support.run.patience import HANGS_AFTER
from support.servers.gate import ALL_STEPS, HELD, Gate, gate

PROMPTS = ["Once upon a time", "The weather today is", "Lily and Tom went to the market."]
CHAT = [{"role": "user", "content": "What is 3 plus 4?"}]


@contextmanager
def held_at(n_outputs: int) -> Iterator[tuple[LanguageModel, Gate, Any]]:
    """Yields a model whose engine stops after `n_outputs` outputs of the prompt, until the gate opens."""
    with gate() as closed:
        served = closed.model()
        made = served.make(read_settings(None, ["device.threads=1", *served.settings]), time.monotonic)
        with LanguageModel(made) as loaded:
            try:
                yield loaded, closed, [HELD - n_outputs]
            finally:
                closed.open(ALL_STEPS)


async def tokens_of(generation: AsyncGeneration) -> list[int]:
    return [token async for reply in generation if isinstance(reply, Chunk) for token in reply.token_ids]


def outputs_of(library: LanguageModel) -> int:
    """Returns the number of outputs after the engine has processed every command."""
    with library.open() as session:
        session.prefill([7], sample=False)
    return library._runtime.client.engine.stats().n_outputs


def blocks_in_use(library: LanguageModel) -> int:
    """Returns the blocks in use after the engine has processed every command."""
    with library.open() as session:
        session.prefill([7])
    return library._runtime.client.engine.stats().blocks_live


def test_lib_4_tasks_read_the_tokens_that_threads_read(library: LanguageModel) -> None:
    async def at_once(seed: int) -> list[list[int]]:
        asked = [library.generate_async(prompt, max_tokens=16, temperature=1, seed=seed) for prompt in PROMPTS]
        return await asyncio.gather(*map(tokens_of, asked), tokens_of(library.chat_async(CHAT, seed=seed)))

    expected = [library.generate(p, max_tokens=16, temperature=1, seed=7).result().token_ids for p in PROMPTS]
    expected.append(library.chat(CHAT, seed=7).result().token_ids)
    assert asyncio.run(at_once(7)) == expected
    assert asyncio.run(at_once(8)) != expected


def test_lib_4_a_task_may_ask_for_the_result(library: LanguageModel) -> None:
    async def both() -> Any:
        generation = library.generate_async(PROMPTS[0], max_tokens=8, temperature=0)
        async with generation:
            first = await anext(generation)
            return first, await generation.result(), await generation.results()

    first, result, results = asyncio.run(both())
    expected = library.generate(PROMPTS[0], max_tokens=8, temperature=0).result()
    assert isinstance(first, imp_service.Started)
    assert (result.text, result.token_ids, result.finish_reason) == (expected.text, expected.token_ids, "max_tokens")
    assert results == [result]


def test_lib_4_a_failure_reaches_the_task(library: LanguageModel) -> None:
    with pytest.raises(imp_service.FieldsInvalid, match="temperature"):
        asyncio.run(tokens_of(library.generate_async(PROMPTS[0], temperature=-1)))


def test_lib_4_the_event_loop_goes_on_while_the_engine_works() -> None:
    with held_at(3) as (library, closed, prompt):

        async def open_the_gate() -> list[int]:
            reading = asyncio.create_task(tokens_of(library.generate_async(prompt, max_tokens=6, temperature=0)))
            await asyncio.to_thread(closed.wait)
            closed.open(ALL_STEPS)  # a loop that waits for the engine would hang here
            return await reading

        assert len(asyncio.run(open_the_gate())) == 6


def test_lib_4_cancelling_a_task_ends_its_run() -> None:
    with held_at(3) as (library, closed, prompt):

        async def cancel() -> None:
            generation = library.generate_async(prompt, ignore_eos=True, temperature=0)
            await anext(generation)
            reading = asyncio.create_task(tokens_of(generation))
            await asyncio.to_thread(closed.wait)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            closed.open(ALL_STEPS)

        asyncio.run(cancel())
        assert outputs_of(library) == 4  # the last one is of the step that was stopped


def test_lib_4_a_task_that_is_cancelled_before_its_run_begins_ends_it_too(library: LanguageModel) -> None:
    is_cancelled = threading.Event()

    def begin() -> imp_service.Generation:
        is_cancelled.wait(HANGS_AFTER)
        with library._runtime.client.together():
            begun = library.generate(PROMPTS[0], ignore_eos=True)
            begun.pause(True)  # it yields nothing until it is ended
        return begun

    async def cancel() -> None:
        generation = AsyncGeneration(begin)
        reading = asyncio.create_task(tokens_of(generation))
        await asyncio.sleep(0)
        reading.cancel()
        with pytest.raises(asyncio.CancelledError):
            await reading
        is_cancelled.set()
        await asyncio.wait_for(generation.aclose(), HANGS_AFTER / 2)

    asyncio.run(cancel())


@pytest.mark.long
def test_lib_4_a_generation_left_early_frees_its_memory(library: LanguageModel) -> None:
    before, threads_before = blocks_in_use(library), set(threading.enumerate())

    async def leave() -> Any:
        async for _ in library.generate_async(PROMPTS[0], ignore_eos=True):
            break
        async with library.generate_async(PROMPTS[1], ignore_eos=True) as closed:
            await anext(closed)
        assert [reply async for reply in closed] == []
        with pytest.raises(imp_service.StateError, match="CANCELLED"):
            await closed.result()
        unread = library.generate_async(PROMPTS[2])
        await unread.aclose()

    asyncio.run(leave())
    assert blocks_in_use(library) <= before + 1
    gc.collect()  # a dropped executor ends its thread when it is collected, without waiting for it
    threads = set(threading.enumerate()) - threads_before
    for thread in threads:
        thread.join(HANGS_AFTER)
    assert not any(thread.is_alive() for thread in threads)


def test_lib_5_another_thread_may_cancel() -> None:
    with held_at(3) as (library, closed, prompt):
        generation = library.generate(prompt, ignore_eos=True)
        closed.wait()
        canceller = threading.Thread(target=generation.cancel)
        canceller.start()
        canceller.join()
        closed.open(ALL_STEPS)
        result = generation.result()
        assert (result.finish_reason, len(result.token_ids)) == ("cancelled", 4)
