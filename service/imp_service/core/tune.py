"""Measures kernels that give equal bits, and finds the fastest for each weight type and number of rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from imp_service import _core
from imp_service.config import AUTO, Config
from imp_service.core.device import CPU, resolve_machine
from imp_service.core.errors import field_invalid
from imp_service.core.inspect import inspect_model
from imp_service.core.isa import isa_setting
from imp_service.core.tuning_file import BANDS, Preference

# The kernel of tables that are only looked up, and of products that no other kernel supports.
UNTUNED = "reference"
# Rows and columns of a matrix if only its type is known.
TYPICAL = 2048
# Products of few rows go through many weights in turn, so that each is read from memory, as in a step. With many rows
# arithmetic is the limit: one matrix, with as many outputs as keep all threads busy.
MEMORY_BYTES = 128 * 1024**2
MANY_ROWS = 64
OUTPUTS_PER_THREAD = 128
SECONDS = 0.1  # of one measurement
# Another kernel is preferred only if it is faster by more than this: two measurements of one kernel differ by less.
MARGIN = 0.03
# A kernel that is so many times slower than the default in the first round is not measured again.
SLOW = 1.5

# Seconds of one product: kernel, subject, rows.
Clock = Callable[[str, "Subject", int], float]
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Subject:
    """A matrix of n rows of k elements that represents all weights of its type."""

    weight: str
    n: int
    k: int


@dataclass(frozen=True, slots=True)
class TunedKernel:
    """The measurements of one type and number of rows, and the kernel that they choose."""

    subject: Subject
    rows: int
    max_rows: int | None
    by_order: str
    kernel: str
    seconds: dict[str, float]  # of each kernel; empty if there is only one

    @property
    def gain(self) -> float | None:
        """The speed relative to the default kernel."""
        return self.seconds[self.by_order] / self.seconds[self.kernel] if self.seconds else None


def subjects_of_model(file: _core.ModelFile, config: Config) -> list[Subject]:
    """For each type of the model's matrices, the shape with the most bytes. `config` comes from machine_clock()."""
    # Without an earlier tuning, which may be of another machine.
    device = replace(config.settings.device, tuning=None)
    config = replace(config, settings=replace(config.settings, device=device))
    bytes_of: Counter[Subject] = Counter()
    for weight in inspect_model(file, config).weights:
        if weight.layout != "vector" and weight.kernels != [UNTUNED]:
            bytes_of[Subject(weight.dtype, weight.n, weight.k)] += weight.n_bytes
    largest: dict[str, Subject] = {}
    for subject, _ in bytes_of.most_common():
        largest.setdefault(subject.weight, subject)
    return list(largest.values())


def subjects_of_types(names: Iterable[str]) -> list[Subject]:
    return [Subject(name, TYPICAL, TYPICAL) for name in names]


def machine_clock(config: Config) -> tuple[Config, Clock]:
    """Resolved settings, and a function that measures a kernel as a model with these settings would run it."""
    config, _ = resolve_machine(config)
    device = config.settings.device
    if device.kind != CPU:
        raise field_invalid("device.kind", f"{device.kind}, expected {CPU}: its kernels are measured")
    assert isinstance(device.threads, int)  # narrows: both are decided
    assert device.cpus is not AUTO
    threads, cpus = device.threads, list(device.cpus)

    def seconds(kernel: str, subject: Subject, rows: int) -> float:
        is_many = rows > MANY_ROWS
        found: list[float] = _core.time_kernel(
            kernel,
            subject.weight,
            m=rows,
            n=min(subject.n, max(1024, OUTPUTS_PER_THREAD * threads)) if is_many else subject.n,
            k=subject.k,
            threads=threads,
            cpus=cpus,
            total_bytes=0 if is_many else MEMORY_BYTES,
            seconds=SECONDS,
            isa=isa_setting(config.settings),
        )
        return min(found)

    return config, seconds


def tune(subjects: Sequence[Subject], isa: str, reps: int, clock: Clock, report: Report) -> list[TunedKernel]:
    """Measures every subject at every number of rows. Kernels alternate, so that a slow moment affects all of them."""
    choices = []
    for subject in subjects:
        for rows, max_rows in BANDS:
            kernels = _core.interchangeable(subject.weight, subject.n, subject.k, max_m=max_rows, isa=isa)
            rounds: dict[str, list[float]] = {kernel: [] for kernel in kernels}
            for i in range(reps):
                for kernel in kernels if len(kernels) > 1 else ():
                    report(f"{subject.weight} × {rows} rows: {kernel}, {i + 1} of {reps}")
                    if i == 0 or rounds[kernel][0] < SLOW * rounds[kernels[0]][0]:
                        rounds[kernel].append(clock(kernel, subject, rows))
            choices.append(_choose(subject, rows, max_rows, rounds))
    return choices


def preferences_of(choices: Iterable[TunedKernel]) -> tuple[Preference, ...]:
    """The preferences of each type for which another kernel than the default is faster at some number of rows."""
    by_type: dict[str, list[TunedKernel]] = {}
    for choice in choices:
        by_type.setdefault(choice.subject.weight, []).append(choice)
    return tuple(
        (weight, choice.kernel, choice.max_rows)
        for weight, bands in by_type.items()
        if any(choice.kernel != choice.by_order for choice in bands)
        for choice in bands
    )


def _choose(subject: Subject, rows: int, max_rows: int | None, rounds: dict[str, list[float]]) -> TunedKernel:
    """Compares each round with the default kernel's, since a slow moment of the machine affects both."""
    by_order, best, best_ratio = next(iter(rounds)), next(iter(rounds)), 1 - MARGIN
    for kernel, found in rounds.items():
        ratios = [one / other for one, other in zip(found, rounds[by_order], strict=False)]
        if kernel != by_order and len(found) == len(rounds[by_order]) and median(ratios) < best_ratio:
            best, best_ratio = kernel, median(ratios)
    seconds = {kernel: median(found) for kernel, found in rounds.items() if found}
    return TunedKernel(subject, rows, max_rows, by_order, best, seconds)
