"""Generations of several tenants in a scheduler without an engine."""

from __future__ import annotations

from typing import Any

from imp_service import _testing

EACH = 12


def make_bench(**options: Any) -> _testing.SchedulerBench:
    defaults = {
        "n_blocks": 40_000,
        "max_running": 128,
        "step_tokens": 512,
        "prefill_chunk": 512,
        "prefill_per_decode": 6,
        "max_context": 4096,
        "decode_per_tenant": EACH,
    }
    return _testing.SchedulerBench(**{**defaults, **options})


def generate(bench: _testing.SchedulerBench, **counts: int) -> dict[int, str]:
    """Starts this many long generations of each tenant and evaluates their prompts."""
    tenant_of = {bench.enqueue(0, 1, 4000, tenant=tenant): tenant for tenant, n in counts.items() for _ in range(n)}
    while not all(bench.is_running(name) for name in tenant_of):
        bench.next_step(0)
        bench.advance()
    return tenant_of
