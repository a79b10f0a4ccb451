"""The machine code of the GPU's kernels, from the compiler's output (needs nvcc, but no GPU), and its reader."""

from __future__ import annotations

import functools
import os
import re
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

import pytest

from imp_service import _core
from support.kernels import machine_code
from support.kernels.machine_code import Compiled, Kernel, ToolMissing
from support.kernels.products_under_way import overwritten

# The architecture of the build, and the oldest one of the portable kernels.
ARCHITECTURES = ("90a", "80")
# Other architectures of the portable kernels. Each compiles one source per kind of instruction, and the one whose code
# depends on the architecture: 14 s of CPU time each, where all sources would take as long as the build's architecture.
OTHER_ARCHITECTURES = ("86", "89", "100", "120")
OF_EACH_INSTRUCTION = ("dp4a", "imma", "float_mma", "wgmma")
# There ptxas allocates registers differently and may spill a few words per thread.
SPILLED_ELSEWHERE = 16
# The most CPU time of a full build for one architecture: four times the 110 s that it takes on two busy cores.
CPU_SECONDS = 440
# With more registers, fewer than 12 warps fit on a multiprocessor; name -> its own limit, and why.
REGISTERS = 168
MORE_REGISTERS: dict[str, tuple[int, str]] = {
    "decode_kernel": (255, "attention: the outputs of heads of 256 elements are its warps' registers"),
    "prefill_kernel": (255, "attention: likewise, of 16 queries for each warp"),
    "imma_kernel": (255, "chains are 64 of them for 32 columns; beyond 128 a processor holds one block in any case"),
}
# Name -> why the kernel uses local memory.
LOCAL_MEMORY: dict[str, str] = {}
# Name -> instructions that may load less than 16 bytes of a weight, and why. Some addresses come from tables of
# experts, so loads through plain pointers are generic.
SCALES = "the scales of a row, which lanes share: the lines that they lie in are read once"
NARROW_WEIGHTS: dict[str, tuple[str, str]] = {
    "dp4a_kernel": (r"LD\.E", SCALES),
    "imma_kernel": (r"LD\.E", SCALES),
    "hmma_kernel": (r"LD\.E(\.U16|\.64)", SCALES),
    "wgmma_kernel": (r"LD\.E(\.U16|\.64)", SCALES),
}
# A word in a kernel's name -> the instruction that the kernel must use.
PROMISES = {
    "imma": r"IMMA\..*",
    "hmma": r"HMMA\..*",
    "wgmma": r"HGMMA\..*",
    "mma": r"(H|I|HG)MMA\..*",
    "dp4a": r"IDP\.4A\..*",
    "cublaslt": r"STG\.E\.128",  # the library multiplies; this kernel decodes weights
}
OF_WEIGHTS = r"(LDG\.E\.NA\..*|LD\.E.*)"
WIDE = r"(LDG\.E\.NA\..*128\..*|LD\.E\.128.*|LDGSTS\..*128.*|UBLKCP.*|UTMALDG.*)"
LOCAL = r"(LDL|STL)(\..*)?"

CONTROLS = """\
// Kernels that do what none may do, one each.
__global__ void __launch_bounds__(1024) spills(const float* in, float* out, int n) {
  float values[96];
  for (int i = 0; i < 96; ++i) values[i] = in[i * n + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 96; ++i) out[i * n + threadIdx.x] = values[95 - i] * in[i];
}
__global__ void keeps_an_array(const float* in, float* out, int n) {
  float values[40];
  for (int i = 0; i < 40; ++i) values[(i * n) % 40] = in[i];
  out[threadIdx.x] = values[n % 40];
}
__global__ void narrow_imma_kernel(const unsigned* in, unsigned* out) {
  unsigned v;
  asm volatile("ld.global.nc.L1::no_allocate.u32 %0,[%1];" : "=r"(v) : "l"(in + threadIdx.x));
  out[threadIdx.x] = v;
}
__global__ void overlaps(const unsigned* in, unsigned* out) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  out[threadIdx.x] = in[threadIdx.x];
}
"""


def architecture_id(source: Path) -> str:
    return source.relative_to(machine_code.ROOM).as_posix()


SOURCES = machine_code.sources()
WGMMA = machine_code.ROOM / "gemm" / "wgmma.cu"
PORTABLE = [source for source in SOURCES if source.stem in OF_EACH_INSTRUCTION]
COMPILATIONS: dict[tuple[Path, str], Future[Compiled]] = {}


def each_source(function: Callable[..., None]) -> Callable[..., None]:
    """Parametrizes a test with all sources. A quick run takes one that it compiles anyway, because all take minutes."""
    function = pytest.mark.parametrize("source", SOURCES, ids=architecture_id)(function)
    return pytest.mark.sweep(quick=is_quick)(function)


def is_quick(source: Path, architecture: str = "90a") -> bool:
    return source == WGMMA and architecture == "90a"


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of cubins. Starts all compilations of this run, as many at a time as there are CPUs."""
    folder, pool = tmp_path_factory.mktemp("cubins"), ThreadPoolExecutor(os.cpu_count())
    COMPILATIONS.clear()
    for pair in asked_for(request.session.items):
        COMPILATIONS[pair] = pool.submit(machine_code.compile_once, *pair, folder)
    return folder


def asked_for(items: list[pytest.Item]) -> list[tuple[Path, str]]:
    """Returns the sources and architectures of the tests of this file that run."""
    called = [item.callspec.params for item in items if item.path == Path(__file__) and hasattr(item, "callspec")]
    return list({(each["source"], each.get("architecture", "90a")): 0 for each in called if "source" in each})


@functools.cache
def compiled(source: Path, architecture: str, folder: Path) -> Compiled:
    try:
        machine_code.nvcc()
        if (source, architecture) in COMPILATIONS:
            return COMPILATIONS[source, architecture].result()
        compile_it = machine_code.compile_once if source in SOURCES else machine_code.compile_source
        return compile_it(source, architecture, folder)
    except ToolMissing as missing:
        pytest.skip(f"no CUDA toolkit: {missing}")


def kernels_with_code(source: Path, folder: Path) -> list[Kernel]:
    """Returns the kernels of a source for the build's architecture."""
    try:
        machine_code.disassembler()
    except ToolMissing as missing:
        pytest.skip(f"no CUDA toolkit: {missing}")
    kernels = list(compiled(source, "90a", folder).kernels)
    assert [kernel.name for kernel in kernels if not kernel.instructions] == []
    return kernels


def named(kernels: list[Kernel], name: str) -> Kernel:
    return next(kernel for kernel in kernels if kernel.name == name)


# The findings about one kernel, as texts.


def memory_findings(kernel: Kernel) -> list[str]:
    if kernel.name in LOCAL_MEMORY:
        return []
    found = [f"{kernel.spill_bytes} bytes spilled"] if kernel.spill_bytes else []
    found += [f"a stack of {kernel.stack_bytes} bytes"] if kernel.stack_bytes else []
    return found + [f"{word} in local memory" for word in kernel.words(LOCAL)]


def register_findings(kernel: Kernel) -> list[str]:
    most, _ = MORE_REGISTERS.get(kernel.name, (REGISTERS, ""))
    return [f"{kernel.registers} registers, expected at most {most}"] if kernel.registers > most else []


def load_findings(kernel: Kernel) -> list[str]:
    """Returns findings about the loads of a kernel that multiplies weights."""
    allowed, _ = NARROW_WEIGHTS.get(kernel.name, ("", ""))
    narrow = [word for word in kernel.words(OF_WEIGHTS) if not re.fullmatch(WIDE, word)]
    found = [f"narrow loads of weights: {word}" for word in narrow if not re.fullmatch(allowed, word)]
    return found if kernel.count(WIDE) else [*found, "no load of 16 bytes"]


def promise_findings(kernel: Kernel) -> list[str]:
    words = kernel.name.split("_")
    return [f"no {word}" for word, pattern in PROMISES.items() if word in words and not kernel.count(pattern)]


def overlap_findings(kernel: Kernel, overlapping: set[str]) -> list[str]:
    waits = kernel.count("ACQBULK") > 0
    if waits == (kernel.name in overlapping):
        return []
    return ["waits for its predecessor, and no launch overlaps it" if waits else "overlaps, and does not wait"]


def launches_that_overlap(text: str) -> set[str]:
    """Returns the kernels of a source whose launches overlap their predecessors."""
    found = set()
    for match in re.finditer(r"\blaunch\(", text):
        arguments = enclosed(text, match.end())
        if re.search(r"\.overlaps_predecessor = true", arguments):
            found.update(re.findall(r"\b\w+_kernel\b", arguments))
    return found


def enclosed(text: str, begin: int) -> str:
    """Returns the text from after an opening parenthesis to the closing one."""
    depth, end = 1, begin
    while depth:
        depth += {"(": 1, ")": -1}.get(text[end], 0)
        end += 1
    return text[begin : end - 1]


# All sources.


@each_source
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_it_compiles_without_warnings_and_spills(source: Path, architecture: str, folder: Path) -> None:
    kernels = compiled(source, architecture, folder).kernels
    assert {k.symbol: k.spill_bytes for k in kernels if k.spill_bytes and k.name not in LOCAL_MEMORY} == {}


@pytest.mark.long
@pytest.mark.parametrize("architecture", OTHER_ARCHITECTURES)
@pytest.mark.parametrize("name", OF_EACH_INSTRUCTION)
def test_it_compiles_without_warnings_for_later_gpus(name: str, architecture: str, folder: Path) -> None:
    (source,) = (path for path in PORTABLE if path.stem == name)
    kernels = compiled(source, architecture, folder).kernels
    assert kernels
    assert {k.symbol: k.spill_bytes for k in kernels if k.spill_bytes > SPILLED_ELSEWHERE} == {}
    if name == "wgmma":  # other GPUs lack the instruction, so the kernel is empty
        assert max(kernel.registers for kernel in kernels) <= 16


@each_source
def test_nothing_lies_in_local_memory(source: Path, folder: Path) -> None:
    kernels = kernels_with_code(source, folder)
    assert {kernel.symbol: found for kernel in kernels if (found := memory_findings(kernel))} == {}


@each_source
def test_registers_stay_below_the_cap(source: Path, folder: Path) -> None:
    kernels = compiled(source, "90a", folder).kernels
    print("\n".join(f"{kernel.registers:4} {kernel.symbol}" for kernel in kernels))
    assert {kernel.symbol: found for kernel in kernels if (found := register_findings(kernel))} == {}


@pytest.mark.sweep(quick=is_quick)
@pytest.mark.parametrize("source", [s for s in SOURCES if "gemm" in s.parts], ids=architecture_id)
def test_weights_are_loaded_16_bytes_at_once(source: Path, folder: Path) -> None:
    kernels = [kernel for kernel in kernels_with_code(source, folder) if multiplies(kernel)]
    assert {kernel.symbol: found for kernel in kernels if (found := load_findings(kernel))} == {}


def multiplies(kernel: Kernel) -> bool:
    return any(word in kernel.name.split("_") for word in PROMISES)


@each_source
def test_kernels_use_the_instructions_that_they_are_named_after(source: Path, folder: Path) -> None:
    kernels = kernels_with_code(source, folder)
    assert {kernel.symbol: found for kernel in kernels if (found := promise_findings(kernel))} == {}


@each_source
def test_who_overlaps_its_predecessor_waits_for_it(source: Path, folder: Path) -> None:
    overlapping = launches_that_overlap(source.read_text())
    kernels = kernels_with_code(source, folder)
    assert {kernel.symbol: found for kernel in kernels if (found := overlap_findings(kernel, overlapping))} == {}


def test_products_under_way_keep_their_registers(folder: Path) -> None:
    kernels = kernels_with_code(WGMMA, folder)
    assert {kernel.count("HGMMA.*") for kernel in kernels} == {8}
    assert {kernel.symbol: kernel.overwrites for kernel in kernels if kernel.overwrites} == {}


@pytest.mark.long
def test_exceptions_are_of_kernels_that_there_are(folder: Path) -> None:
    names = {kernel.name for source in SOURCES for kernel in compiled(source, "90a", folder).kernels}
    assert (MORE_REGISTERS.keys() | LOCAL_MEMORY.keys() | NARROW_WEIGHTS.keys()) - names == set()


@pytest.mark.long
def test_every_listed_kernel_is_compiled(folder: Path) -> None:
    """The last word of a row's name is part of its function's name: q8_0_dp4a is dp4a_kernel."""
    compiled_words = {
        word
        for source in SOURCES
        for kernel in compiled(source, "90a", folder).kernels
        for word in kernel.name.split("_")
    }
    rows = [row["name"] for row in _core.kernels("cuda_emulated")]
    assert [name for name in rows if name.split("_")[-1] not in compiled_words] == []


@pytest.mark.long
def test_compiling_costs_little(folder: Path) -> None:
    seconds = {architecture_id(source): compiled(source, "90a", folder).cpu_seconds for source in SOURCES}
    for name, cost in sorted(seconds.items(), key=lambda item: -item[1]):
        print(f"{cost:7.2f} s {name}")
    total = sum(seconds.values())
    print(f"{total:7.2f} s in all, of {CPU_SECONDS}")
    assert total <= CPU_SECONDS, seconds


# The checks report faulty kernels.


@pytest.fixture(scope="module")
def controls(folder: Path) -> list[Kernel]:
    source = folder / "controls.cu"
    source.write_text(CONTROLS)
    return kernels_with_code(source, folder)


@pytest.mark.long
def test_spills_and_arrays_are_found(controls: list[Kernel]) -> None:
    spills, array = named(controls, "spills"), named(controls, "keeps_an_array")
    assert any("spilled" in found for found in memory_findings(spills))
    assert "STL in local memory" in memory_findings(spills)
    assert array.spill_bytes == 0
    assert any("stack" in found for found in memory_findings(array))


def test_narrow_loads_and_broken_promises_are_found(controls: list[Kernel]) -> None:
    kernel = named(controls, "narrow_imma_kernel")
    assert load_findings(kernel) == ["narrow loads of weights: LDG.E.NA.CONSTANT", "no load of 16 bytes"]
    assert promise_findings(kernel) == ["no imma"]


def test_too_many_registers_are_found(controls: list[Kernel], monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = named(controls, "overlaps")
    assert register_findings(kernel) == []
    monkeypatch.setitem(MORE_REGISTERS, "overlaps", (1, "a control"))
    assert register_findings(kernel) == [f"{kernel.registers} registers, expected at most 1"]


def test_waiting_goes_with_overlapping(controls: list[Kernel]) -> None:
    waits, plain = named(controls, "overlaps"), named(controls, "keeps_an_array")
    assert overlap_findings(waits, {"overlaps"}) == overlap_findings(plain, set()) == []
    assert overlap_findings(waits, set()) == ["waits for its predecessor, and no launch overlaps it"]
    assert overlap_findings(plain, {"keeps_an_array"}) == ["overlaps, and does not wait"]
    text = "launch(s, a_kernel<1>, {.grid = f(1), .overlaps_predecessor = true}, x); launch(s, b_kernel, {1}, y);"
    assert launches_that_overlap(text) == {"a_kernel"}


def test_warnings_are_errors(folder: Path) -> None:
    source = folder / "warns.cu"
    source.write_text("__global__ void warns(int* out) { int unread = 1; unread = 2; *out = 3; return; *out = 4; }\n")
    with pytest.raises(AssertionError, match=r"warns\.cu for sm_90a"):
        compiled(source, "90a", folder)


def test_what_was_compiled_once_is_known_until_it_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compilations = []

    def compile_source(source: Path, architecture: str, folder: Path) -> Compiled:
        kernel = Kernel("one", "_Z3onePi", 8, 0, 0, Counter({"EXIT": 2}), [])
        compilations.append(Compiled(source.name, float(len(compilations)), (kernel,)))
        return compilations[-1]

    source, header, versions = tmp_path / "one.cu", tmp_path / "one.cuh", ["13.0.88"]
    for name, value in {
        "CSRC": tmp_path, "REMEMBERED": tmp_path / "remembered", "compile_source": compile_source,
        "nvcc_version": lambda: versions[-1], "build_flags": lambda: ["-O3"],
    }.items():  # fmt: skip
        monkeypatch.setattr(machine_code, name, value)

    def is_known() -> bool:
        n_compiled = len(compilations)
        assert machine_code.compile_once(source, "90a", tmp_path) == compilations[-1]
        return len(compilations) == n_compiled

    source.write_text('#include "one.cuh"\n__global__ void one(int* out) { *out = two; }\n')
    header.write_text("constexpr int two = 2;\n")
    assert not is_known()
    header.write_text("// Of one thread.\nconstexpr int two = 2;\n")
    assert is_known()
    header.write_text("constexpr int two = 3;\n")
    assert not is_known()
    versions.append("13.0.99")
    assert not is_known()
    assert is_known()


def test_symbols_are_read() -> None:
    assert machine_code.function_name("_ZN3imp4cuda11dp4a_kernelILNS_5DTypeE12ELi4EEEvNS0_8TileWorkE") == "dp4a_kernel"
    assert machine_code.function_name("_Z6spillsPKfPfi") == "spills"
    assert machine_code.function_name("plain") == "plain"


# Two groups of one product each; the second is in flight when the loop starts again.
LOOP = [
    "LDG.E.128.CONSTANT R152, desc[UR4][R2.64] ;",
    "HGMMA.64x128x16.F32 R24, R168, gdesc[UR12], R24, gsb0 ;",
    "WARPGROUP.DEPBAR.LE gsb0, 0x1 ;",
    "HGMMA.64x128x16.F32 R88, R160, gdesc[UR16], R88, gsb0 ;",
    "WARPGROUP.DEPBAR.LE gsb0, 0x1 ;",
    "@P0 BRA 0x0 ;",
    "WARPGROUP.DEPBAR.LE gsb0, 0x0 ;",
    "FMUL R24, R24, R3 ;",
]


def listing(lines: list[str]) -> str:
    return "\n".join(f"        /*{16 * i:04x}*/      {line}   /* 0x0000000000000000 */" for i, line in enumerate(lines))


def test_what_is_waited_for_may_be_written() -> None:
    assert overwritten(listing(LOOP)) == []


@pytest.mark.parametrize(
    ("at", "line"),
    [
        (
            0,
            "LDG.E.128.CONSTANT R160, desc[UR4][R2.64] ;",
        ),  # the left operand of the second product of the previous iteration
        (0, "LDG.E.128.CONSTANT R157, desc[UR4][R2.64] ;"),  # its last register overlaps the operand
        (0, "@!P1 MOV R163, R1 ;"),
        (0, "FADD R151, R1, R2 ;"),  # the last register of its sums
        (2, "WARPGROUP.DEPBAR.LE gsb0, 0x2 ;"),  # waits for too little, and the next line overwrites an operand
        (6, "NOP ;"),  # nobody waits for the last product
    ],
)
def test_what_is_under_way_may_not(at: int, line: str) -> None:
    lines = [*LOOP[:at], line, *LOOP[at + 1 :]]
    if at == 2:
        lines.insert(3, "FMUL R168, R1, R2 ;")
    if at == 6:
        lines[7] = "FMUL R88, R88, R3 ;"
    assert len(overwritten(listing(lines))) >= 1


def test_stores_and_comparisons_write_none() -> None:
    for line in ("STG.E.128 desc[UR4][R160.64], R160 ;", "ISETP.GT.AND P0, PT, R160, RZ, PT ;"):
        assert overwritten(listing([line, *LOOP[1:]])) == []
