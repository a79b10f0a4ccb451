"""CPUs, cores and nodes, read from file trees of kernels on several machines."""

from pathlib import Path

import pytest

from imp_service.config.cpus import (
    CPUS,
    NODES,
    Cpu,
    CpuList,
    cores_first,
    n_cores,
    parse_cpu_list,
    read_topology,
    write_cpu_list,
)
from imp_service.config.kinds import UnfitError


def machine(root: Path, siblings: dict[int, str], nodes: dict[int, str], name: str = "core_cpus_list") -> Path:
    """Writes a root with these CPUs and their cores' CPUs, and these nodes and their CPUs."""
    files = {f"{CPUS}/cpu{number}/topology/{name}": text for number, text in siblings.items()}
    files |= {f"{NODES}/node{number}/cpulist": text for number, text in nodes.items()}
    for path, text in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text + "\n")
    return root


# x86 servers number the second threads of all cores after the first ones.
SERVER = ({n: f"{n % 4},{n % 4 + 4}" for n in range(8)}, {0: "0-1,4-5", 1: "2-3,6-7"})
# Laptops and some clouds number the threads of a core consecutively.
LAPTOP = ({n: f"{n - n % 2}-{n - n % 2 + 1}" for n in range(4)}, {0: "0-3"})


def test_cores_and_nodes_are_read(tmp_path: Path):
    cpus = read_topology([6, 2, 1], machine(tmp_path, *SERVER))
    assert cpus == (Cpu(1, core=1, node=0), Cpu(2, core=2, node=1), Cpu(6, core=2, node=1))
    assert n_cores(cpus) == 2


@pytest.mark.parametrize(
    ("files", "allowed", "expected"),
    [
        (SERVER, range(8), [0, 1, 2, 3, 4, 5, 6, 7]),
        (SERVER, [1, 4, 5, 7], [1, 4, 7, 5]),
        (LAPTOP, range(4), [0, 2, 1, 3]),
    ],
)
def test_cores_come_before_second_threads(files, allowed, expected: list[int], tmp_path: Path):
    assert cores_first(read_topology(allowed, machine(tmp_path, *files))) == expected


def test_the_older_name_of_the_file_is_read(tmp_path: Path):
    cpus = read_topology(range(4), machine(tmp_path, *LAPTOP, name="thread_siblings_list"))
    assert [cpu.core for cpu in cpus] == [0, 0, 2, 2]


@pytest.mark.parametrize("text", ["", "lots", "3-1", "1-", "99999"])
def test_where_the_kernel_says_nothing_each_cpu_is_a_core_of_node_0(text: str, tmp_path: Path):
    root = machine(tmp_path, {5: text}, {1: text})
    assert read_topology([9, 5], root) == (Cpu(5, core=5, node=0), Cpu(9, core=9, node=0))


@pytest.mark.parametrize(
    ("text", "numbers", "shortest"),
    [
        ("0-3,8", (0, 1, 2, 3, 8), "0-3,8"),
        ("8, 0-1", (8, 0, 1), "8,0-1"),
        ("3,2,1", (3, 2, 1), "3,2,1"),
        ("4,5", (4, 5), "4-5"),
        ("7-7", (7,), "7"),
    ],
)
def test_lists_keep_their_order(text: str, numbers: tuple[int, ...], shortest: str):
    assert parse_cpu_list(text) == numbers
    assert write_cpu_list(numbers) == shortest
    assert CpuList().plain(numbers) == shortest


@pytest.mark.parametrize("raw", ["", "0,0", "0-3,2", "3-1", "-1", "a", "0;1", "8192", 3, ["0"], None, "0-"])
def test_what_is_no_list_of_cpus_is_refused(raw: object):
    with pytest.raises(UnfitError):
        CpuList().read(raw)


def test_a_single_cpu_needs_no_quotes_outside_a_file():
    assert CpuList().read_text("3") == (3,)
    assert CpuList().read_text('"3"') == (3,)
    assert CpuList().read_text("none") == ()
