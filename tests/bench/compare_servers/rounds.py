"""Runs a load on each server in turn, while the other is stopped."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import time
from collections.abc import Sequence

from bench.compare_peers.engine_process import busy_seconds, settle
from bench.compare_peers.rounds import ShowProgress
from bench.compare_servers.limit import Limit
from bench.compare_servers.load import Load, Run, run_load
from bench.compare_servers.outcome import Outcome, Sample
from bench.compare_servers.servers import Server
from support.process_numbers import thread_seconds

WARM_UP_TOKENS = 4


def compare(load: Load, servers: Sequence[Server], limit: Limit, reps: int, show: ShowProgress) -> Outcome:
    """Runs all rounds. The server that goes first alternates."""
    for server in servers:
        show(f"{load.label}: warming up {server.name}")
        asked(server, dataclasses.replace(load, output_tokens=WARM_UP_TOKENS, requests=1), limit)
        settle(server.pid)
    rounds = []
    for number in range(reps):
        first = number % len(servers)
        found = {}
        for server in [*servers[first:], *servers[:first]]:
            show(f"{load.label}: round {number + 1} of {reps}, {server.name}")
            found[server.name] = sample(server, load, limit)
        rounds.append(found)
    return Outcome(load, rounds, {server.name: server.start_seconds for server in servers})


def sample(server: Server, load: Load, limit: Limit) -> Sample:
    """Runs one round of one server, right after a probe of the rates."""
    rates = probed(limit)
    began, busy, before = time.monotonic(), busy_seconds(), thread_seconds(server.pid)
    run = asked(server, load, limit)
    spent = sum(had - before.get(thread, ("", 0.0))[1] for thread, (_, had) in thread_seconds(server.pid).items())
    others = (busy_seconds() - busy - spent - run.client_cpu_seconds) / (time.monotonic() - began)
    settle(server.pid)
    return Sample(run, spent, max(0.0, others), limit.tokens_per_s(load, rates))


def probed(limit: Limit) -> dict[str, float]:
    """Probes the rates on the servers' CPUs, which may differ from the clients'."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, limit.cpus)
    try:
        return limit.probe()
    finally:
        os.sched_setaffinity(0, own)


def asked(server: Server, load: Load, limit: Limit) -> Run:
    """Runs a load over connections that only this round uses."""

    async def run() -> Run:
        async with server.clients[load.api]() as ask:
            return await run_load(load, limit.vocab_size, ask)

    return asyncio.run(run())
