"""Placement of threads and memory: the decisions for machines given as data, and the settings that are refused."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from imp_service.config import ConfigError
from imp_service.config.cpus import NODES, Cpu
from imp_service.config.machine import resolve_threads
from imp_service.config.placement import (
    MemoryPlan,
    nodes_of_threads,
    plan_memory,
    plan_threads,
    resolve_cpus,
    resolve_memory,
)


def cpus_of(n_cores: int, threads_per_core: int = 1) -> list[Cpu]:
    return [Cpu(number, core=number % n_cores, node=0) for number in range(n_cores * threads_per_core)]


def willing(nodes: Sequence[int]) -> str:
    return ""


def filtered(nodes: Sequence[int]) -> str:
    """Returns the error of a container's system call filter."""
    return "mbind: Operation not permitted"


@pytest.mark.parametrize(
    ("threads", "cpus", "pinned", "reason"),
    [
        (2, cpus_of(2), (0, 1), "a thread for each of 2 cores"),
        (1, cpus_of(1), (0,), "a thread for each of 1 core"),
        (4, cpus_of(4, 2), (0, 1, 2, 3), "a thread for each of 4 cores of 8 CPUs"),
        (8, cpus_of(4, 2), (0, 1, 2, 3, 4, 5, 6, 7), "a thread for each of 4 cores of 8 CPUs"),
        (3, cpus_of(4), (), "3 threads for 4 cores: others may run on the rest"),
        (1, cpus_of(4, 2), (), "1 thread for 4 cores of 8 CPUs: others may run on the rest"),
        (6, cpus_of(4, 2), (), "6 threads for 4 cores of 8 CPUs: others may run on the rest"),
        (5, cpus_of(4), (), "5 threads for 4 cores: they would share them"),
    ],
)
def test_threads_are_pinned_where_they_take_every_core(threads: int, cpus: list[Cpu], pinned, reason: str):
    plan = plan_threads(threads, cpus)
    assert (plan.cpus, plan.reason) == (pinned, reason)


@pytest.mark.parametrize(
    ("wanted", "nodes", "refusal", "plan"),
    [
        (None, [0], willing, MemoryPlan("first_touch", (), "one node for memory, 0")),
        (None, [0, 2], willing, MemoryPlan("interleave", (0, 2), "threads on nodes 0,2")),
        (
            None,
            [0, 1],
            filtered,
            MemoryPlan("first_touch", (), "nodes 0-1, the system refuses interleaving: mbind: Operation not permitted"),
        ),
        ("first_touch", [0, 1], willing, MemoryPlan("first_touch", (), "")),
        ("interleave", [0, 1], willing, MemoryPlan("interleave", (0, 1), "")),
        ("interleave", [1], willing, MemoryPlan("first_touch", (), "one node for memory, 1")),
    ],
)
def test_memory_is_interleaved_over_the_nodes_of_the_threads(wanted, nodes, refusal, plan: MemoryPlan):
    assert plan_memory(wanted, nodes, refusal) == plan


@pytest.fixture
def two_nodes(machine: Path) -> Path:
    """A root with two nodes, each with a CPU of this process. With one CPU both have the same."""
    numbers = sorted(os.sched_getaffinity(0))
    for node, number in enumerate((numbers[0], numbers[-1])):
        (machine / NODES / f"node{node}").mkdir(parents=True)
        (machine / NODES / f"node{node}/cpulist").write_text(f"{number}\n")
    return machine


def test_a_list_of_cpus_decides_the_threads(load_text, machine):
    first = min(os.sched_getaffinity(0))
    config = resolve_threads(load_text(f'device.cpus = "{first}"'), machine)
    assert config.settings.device.threads == 1
    assert resolve_cpus(config, machine) is config
    (entry,) = [entry for entry in config.entries() if entry.name == "device.threads"]
    assert str(entry.origin) == "auto: one for each of device.cpus"


def test_none_leaves_threads_to_the_kernel(load_text, machine):
    config = resolve_cpus(resolve_threads(load_text('device.cpus = "none"'), machine), machine)
    assert config.settings.device.cpus == ()


def test_a_count_that_does_not_match_the_threads_is_a_contradiction(load_text):
    with pytest.raises(ConfigError) as caught:
        load_text('[device]\ncpus = "0-2"\nthreads = 2\n')
    assert caught.value.where == "imp.conf:2:device.cpus"
    assert str(caught.value).endswith("device.cpus names 3, and device.threads is 2: expected one for each thread")
    assert load_text('[device]\ncpus = "none"\nthreads = 2\n').settings.device.cpus == ()


def test_a_cpu_beyond_the_affinity_mask_is_refused_with_those_inside(load_text, machine):
    config = resolve_threads(load_text('device.cpus = "8190-8191"'), machine)
    with pytest.raises(
        ConfigError, match=r"imp\.conf:1:device\.cpus: found 8190-8191, expected CPUs that this process"
    ):
        resolve_cpus(config, machine)


@pytest.mark.parametrize("text", ['"0,0"', '"3-1"', '"all"', "2", '""'])
def test_an_invalid_list_of_cpus_is_refused(load_text, text: str):
    with pytest.raises(ConfigError, match='expected "auto" or none, or a list of CPUs in which each is named once'):
        load_text(f"device.cpus = {text}")


def test_interleaving_on_one_node_is_refused(load_text, machine):
    config = resolve_cpus(resolve_threads(load_text('device.numa = "interleave"'), machine), machine)
    with pytest.raises(ConfigError, match="found interleave, expected first_touch: one node for memory, 0"):
        resolve_memory(config, willing, machine)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has one node")
def test_interleaving_that_the_system_refuses_is_an_error_where_it_was_asked_for(load_text, two_nodes):
    asked = resolve_cpus(resolve_threads(load_text('device.numa = "interleave"'), two_nodes), two_nodes)
    assert resolve_memory(asked, willing, two_nodes) == (asked, (0, 1))
    with pytest.raises(ConfigError, match="refuses it for nodes 0-1: mbind: Operation not permitted"):
        resolve_memory(asked, filtered, two_nodes)
    left_open = resolve_cpus(resolve_threads(load_text(""), two_nodes), two_nodes)
    config, nodes = resolve_memory(left_open, filtered, two_nodes)
    assert (config.settings.device.numa, nodes) == ("first_touch", ())


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one CPU has one node")
@pytest.mark.parametrize(
    ("allowed", "nodes"), [("0-1", [0, 1]), ("1", [1]), ("3,5", [3, 5]), ("lots", [0, 1]), ("", [0, 1])]
)
def test_memory_lies_only_where_the_process_may_have_it(allowed: str, nodes: list[int], load_text, two_nodes):
    (two_nodes / "proc/self").mkdir(parents=True)
    (two_nodes / "proc/self/status").write_text(f"Name:\timp\nMems_allowed:\t1\nMems_allowed_list:\t{allowed}\n")
    config = resolve_cpus(resolve_threads(load_text(""), two_nodes), two_nodes)
    assert nodes_of_threads(config, two_nodes) == nodes
