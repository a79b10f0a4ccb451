"""Compares imp with llama.cpp's library for images (libmtmd): the time to encode a part of a picture.

`python tools/compare images` writes projectors with random weights in the shapes of known vision towers. Both engines
load the same file, in processes of their own, and take turns. The cells that they make are compared first. The extra
`peers` has llama.cpp; imp needs the extension for its tests.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack, contextmanager
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from compare.options import parser_of
from compare.refused import RefusedError
from compare.report import Report
from compare.table import SPREAD, Table, numbers, times
from imp_service.cli.arguments import positive_integer
from imp_service.core.bench.report import Spread
from support.run.needed import EXTENSION, TESTING, absent, missing_of, needs

if TYPE_CHECKING:
    from support.models.tiny_tower import TinyTower

TOWERS = ("smolvlm", "qwen3-vl")
TYPES = ("bf16", "q8_0", "f16")
# The whole encoding at once.
ALL_ROWS = 1 << 20
# Both make the same cells, up to the rounding of their types.
LEAST_COSINE = 0.99

Encode = Callable[[], Any]


def tower_of(name: str) -> TinyTower:
    """A tower of this name's sizes; of Qwen3-VL the first 6 layers."""
    with needs(TESTING):
        from support.models.tiny_idefics3_tower import Idefics3Tower
        from support.models.tiny_qwen_tower import QwenTower

    sizes: dict[str, Any] = {"patch_size": 16, "mean": (0.5, 0.5, 0.5), "deviation": (0.5, 0.5, 0.5)}
    if name == "smolvlm":
        sizes |= {"hidden_size": 768, "ffn_size": 3072, "n_heads": 12, "n_layers": 12, "slice_width": 960}
        return Idefics3Tower(tile_size=512, reduction=4, longest_side=2048, **sizes)
    sizes |= {"hidden_size": 1024, "ffn_size": 4096, "n_heads": 16, "n_layers": 6, "slice_width": 2048}
    pixels = {"min_pixels": 65536, "max_pixels": 1024 * 1024}
    return QwenTower(cells=(16, 16), table_side=48, taps=(1, 3), reduction=2, **pixels, **sizes)


def main(words: Sequence[str]) -> None:
    """Prints a row for each tower, type and engine."""
    parser = parser_of("images", __doc__)
    parser.add_argument("--towers", default=",".join(TOWERS), metavar="NAME,…", help="default: %(default)s")
    parser.add_argument("--types", default=",".join(TYPES), metavar="TYPE,…", help="default: %(default)s")
    parser.add_argument("--engines", default=",".join(ENGINES), metavar="NAME,…", help="default: %(default)s")
    parser.add_argument("--threads", type=positive_integer, default=2, metavar="N", help="default: %(default)s")
    parser.add_argument("--reps", type=positive_integer, default=5, metavar="N", help="rounds; default: %(default)s")
    arguments = parser.parse_args(words)
    if missing_of([EXTENSION]):
        raise RefusedError(absent(EXTENSION, TESTING))
    table = Table((("tower", -12), ("type", -6), ("engine", -12), *SPREAD, ("imp is", 13)))
    print(f"seconds for a part\n{table.heading}", flush=True)
    with Report("images", arguments) as report, tempfile.TemporaryDirectory() as scratch:
        for name, kind in product(arguments.towers.split(","), arguments.types.split(",")):
            files = written(name, kind, Path(scratch))
            with ExitStack() as stack:
                workers = started(
                    stack, arguments.engines.split(","), name, files, threads=arguments.threads, report=report
                )
                taken = measured(workers, arguments.reps)
            for engine, spread in taken.items():
                ratio = Spread.of(b / a for a, b in zip(taken["imp"].samples, spread.samples, strict=True))
                shown = "" if engine == "imp" else times(ratio)
                print(table.row(name, kind, engine, *numbers(spread), shown), flush=True)
                report.rows["cases"].append({"tower": name, "type": kind, "engine": engine, "s": spread.as_json()})


def written(name: str, kind: str, scratch: Path) -> tuple[Path, Path]:
    """The files of a projector, and of a text model that fits it, which llama.cpp needs."""
    if name not in TOWERS:
        raise RefusedError(f"{name}: unknown tower, expected one of {', '.join(TOWERS)}")
    with needs(TESTING):
        from support.models.worded_models import write_worded

    tower, projector, model = tower_of(name), scratch / f"{name}-{kind}.gguf", scratch / f"{name}.gguf"
    tower.projector(kind).write(projector)
    if not model.exists():
        write_worded(model, ["<image>"], family="llama", hidden_size=tower.width)
    return projector, model


def started(
    stack: ExitStack, engines: Sequence[str], name: str, files: tuple[Path, Path], *, threads: int, report: Report
) -> dict[str, ProcessPoolExecutor]:
    """The engines, imp first. One that does not start is left out."""
    found = {}
    for engine in ["imp", *(each for each in engines if each != "imp")]:
        if engine not in ENGINES:
            raise RefusedError(f"{engine}: unknown engine, expected one of {', '.join(ENGINES)}")
        worker = stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
        try:
            worker.submit(_load, engine, name, *files, threads).result()
        except RefusedError as refusal:
            report.left_out[engine] = str(refusal)
            print(f"{engine} is left out: {refusal}", flush=True)
        else:
            found[engine] = worker
    return found


def measured(workers: dict[str, ProcessPoolExecutor], reps: int) -> dict[str, Spread]:
    """Seconds of each engine, which take turns. Raises RefusedError if they make other cells."""
    ours, *theirs = [worker.submit(_cells).result() for worker in workers.values()]  # this also warms up
    for cells in theirs:
        _require_equal(ours.reshape(cells.shape), cells)
    seconds: dict[str, list[float]] = {engine: [] for engine in workers}
    for _ in range(reps):
        for engine, worker in workers.items():
            seconds[engine].append(worker.submit(_seconds).result())
    return {engine: Spread.of(samples) for engine, samples in seconds.items()}


@contextmanager
def imp(tower: TinyTower, projector: Path, _: Path, threads: int) -> Iterator[Encode]:
    """Yields a function that encodes a part with imp's tower."""
    from imp_service import _core, _testing

    sizes = {"hidden_size": tower.width, "threads": threads, "decoder_row_cost": 360e6}
    made, pixels = _testing.VisionTower(_core.open_model_file(projector), **sizes), tower.pixels()

    def encode() -> Any:
        made.begin(pixels)
        while not made.is_done:
            made.advance(ALL_ROWS)
        return made.encoding()

    yield encode


@contextmanager
def llama_cpp(tower: TinyTower, projector: Path, model: Path, threads: int) -> Iterator[Encode]:
    """Yields a function that encodes a part with libmtmd."""
    try:
        from support.oracles.llama_cpp_towers import encoding
    except ImportError as missing:
        raise RefusedError(f"not installed: {missing}") from None
    with encoding(tower, projector, model, threads) as encode:
        yield encode


ENGINES = {"imp": imp, "llama.cpp": llama_cpp}
# Of a worker's process.
_stack, _loaded = ExitStack(), list[Encode]()


def _load(engine: str, name: str, projector: Path, model: Path, threads: int) -> None:
    _loaded.append(_stack.enter_context(ENGINES[engine](tower_of(name), projector, model, threads)))


def _cells() -> Any:
    return np.asarray(_loaded[0](), np.float64)


def _seconds() -> float:
    began = time.perf_counter()
    _loaded[0]()
    return time.perf_counter() - began


def _require_equal(ours: Any, theirs: Any) -> None:
    norms = np.linalg.norm(ours, axis=1) * np.linalg.norm(theirs, axis=1)
    least = float(((ours * theirs).sum(axis=1) / norms).min())
    if not least >= LEAST_COSINE:
        raise RefusedError(f"llama.cpp makes other cells: least cosine {least:.4f}")
