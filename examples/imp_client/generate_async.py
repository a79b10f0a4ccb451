"""Generates two texts at once with asyncio.

python generate_async.py [TARGET [MAX_TOKENS [DEADLINE_SECONDS]]]
"""

import asyncio
import sys

import imp_client

PROMPTS = ("Once upon a time", "The weather today")


async def main(target: str = "127.0.0.1:50051", max_tokens: str = "32", deadline: str = "30") -> int:
    async with imp_client.connect_async(target, timeout=float(deadline)) as model:
        # One connection carries any number of calls; the server batches those that run together. Cancelling a task
        # cancels its call, and the server frees its memory within one step.
        calls = [model.generate(prompt, temperature=0, max_tokens=int(max_tokens)).result() for prompt in PROMPTS]
        results = await asyncio.gather(*calls, return_exceptions=True)
    for prompt, result in zip(PROMPTS, results, strict=True):
        if isinstance(result, imp_client.Error):
            print(f"{prompt!r}: {result.reason}: {result.message}", file=sys.stderr)
        elif isinstance(result, BaseException):
            raise result
        else:
            print(f"{prompt}{result.text}\n")
    return 1 if any(isinstance(result, BaseException) for result in results) else 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
