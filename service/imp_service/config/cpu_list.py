"""Lists of CPUs as the kernel writes them: 0-3,8."""

import re
from collections.abc import Sequence

from imp_service.config.kinds import Kind, UnfitError
from imp_service.config.toml import read_value

# Beyond any machine; what bounds the length of a range.
MOST_CPUS = 8192
NONE = "none"

_RANGE = re.compile(r"([0-9]{1,4})(?:-([0-9]{1,4}))?")


def parse_cpu_list(text: str) -> tuple[int, ...]:
    """The numbers in the order of the text; none for an empty one. Raises ValueError for what is no list."""
    numbers: list[int] = []
    for part in text.split(",") if text else ():
        found = _RANGE.fullmatch(part.strip())
        if found is None:
            raise ValueError(text)
        first, last = int(found[1]), int(found[2] or found[1])
        if not first <= last < MOST_CPUS:
            raise ValueError(text)
        numbers.extend(range(first, last + 1))
    return tuple(numbers)


def write_cpu_list(numbers: Sequence[int]) -> str:
    """The shortest text that parse_cpu_list reads as these numbers, in their order."""
    parts: list[str] = []
    begin = 0
    for end in range(1, len(numbers) + 1):
        if end < len(numbers) and numbers[end] == numbers[end - 1] + 1:
            continue
        first, last = numbers[begin], numbers[end - 1]
        parts.append(f"{first}" if first == last else f"{first}-{last}")
        begin = end
    return ",".join(parts)


class CpuList(Kind[tuple[int, ...]]):
    """CPUs, each named once; `"none"` is the empty list."""

    expected = f'{NONE}, or a list of CPUs in which each is named once, as "0-3,8"'
    allowed = f'"{NONE}" or a list as "0-3,8"'

    def read(self, raw: object) -> tuple[int, ...]:
        if raw == NONE:
            return ()
        try:
            numbers = parse_cpu_list(raw) if isinstance(raw, str) else ()
        except ValueError:
            numbers = ()
        if not numbers or len(set(numbers)) != len(numbers):
            raise UnfitError(self.expected)
        return numbers

    def read_text(self, text: str) -> tuple[int, ...]:
        # A single CPU reads as a number of TOML.
        raw = read_value(text)
        return self.read(text if isinstance(raw, int) else raw)

    def plain(self, value: object) -> object:
        if not isinstance(value, tuple):
            return value
        return write_cpu_list(value) if value else NONE
