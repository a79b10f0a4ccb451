"""Watches a process for leaks: samples its resident memory, descriptors and threads at quiet times."""

from __future__ import annotations

import statistics
import threading
from dataclasses import asdict, dataclass

from support.machine.process_numbers import ProcessNumbers

MIB = 1024**2
# The growth that faults.md, G4, allows.
GROWTH_BYTES = 16 * MIB
# Threads of gRPC's own pool, and closed connections that the server has not noticed yet.
SPARE_THREADS = 8
SPARE_DESCRIPTORS = 16


@dataclass(frozen=True)
class Growth:
    """The medians of the first and of the last samples."""

    resident_mib_first: float
    resident_mib_last: float
    descriptors_first: float
    descriptors_last: float
    threads_first: float
    threads_last: float
    n_samples: int
    cpu_seconds: float

    def problems(self) -> list[str]:
        """Returns the leaks as texts."""
        found = []
        if (self.resident_mib_last - self.resident_mib_first) * MIB > GROWTH_BYTES:
            found.append(f"resident memory grew from {self.resident_mib_first:.1f} to {self.resident_mib_last:.1f} MiB")
        if self.descriptors_last > self.descriptors_first + SPARE_DESCRIPTORS:
            found.append(f"descriptors grew from {self.descriptors_first} to {self.descriptors_last}")
        if self.threads_last > self.threads_first + SPARE_THREADS:
            found.append(f"threads grew from {self.threads_first} to {self.threads_last}")
        return found

    def as_json(self) -> dict[str, object]:
        """Returns the medians for the verdict."""
        return asdict(self)


class Watch:
    """Samples a process every `seconds` on its own thread."""

    def __init__(self, pid: int, seconds: float) -> None:
        self._pid = pid
        self._seconds = seconds
        self._stop = threading.Event()
        self._samples: list[ProcessNumbers] = []
        self._thread = threading.Thread(target=self._sample, name="watch")
        self._thread.start()

    def _sample(self) -> None:
        while not self._stop.wait(self._seconds):
            self._samples.append(ProcessNumbers.of(self._pid))

    def stop(self) -> Growth:
        """Compares the tenth of the samples after the first tenth, which warms up, with the last tenth."""
        self._stop.set()
        self._thread.join()
        self._samples.append(ProcessNumbers.of(self._pid))
        tenth = max(1, len(self._samples) // 10)
        first, last = self._samples[tenth : 2 * tenth] or self._samples[:1], self._samples[-tenth:]

        def median(part: list[ProcessNumbers], name: str) -> float:
            return statistics.median(getattr(sample, name) for sample in part)

        return Growth(
            median(first, "resident_bytes") / MIB,
            median(last, "resident_bytes") / MIB,
            median(first, "n_descriptors"),
            median(last, "n_descriptors"),
            median(first, "n_threads"),
            median(last, "n_threads"),
            len(self._samples),
            self._samples[-1].cpu_seconds,
        )
