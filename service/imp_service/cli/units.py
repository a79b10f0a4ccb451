"""Numbers for people: bytes and counts with three digits."""


def bytes_text(n_bytes: int) -> str:
    """As "4.1 MB" or "23.5 GB": powers of 1000, as disks and downloads are sold."""
    return _scaled(n_bytes, 1000, ("B", "kB", "MB", "GB", "TB"), " ")


def memory_text(n_bytes: int) -> str:
    """As "3.9 MiB": powers of 1024, as memory is divided."""
    return _scaled(n_bytes, 1024, ("B", "KiB", "MiB", "GiB", "TiB"), " ")


def count_text(count: int) -> str:
    """As "3.7M": a model's parameters."""
    return _scaled(count, 1000, ("", "k", "M", "B", "T"), "")


def _scaled(number: int, step: int, units: tuple[str, ...], gap: str) -> str:
    value, unit = float(number), 0
    # What would be written as 1000 of a unit is 1.0 of the next.
    while unit + 1 < len(units) and value >= step - 0.5:
        value, unit = value / step, unit + 1
    digits = f"{value:.0f}" if unit == 0 or value >= 99.95 else f"{value:.1f}"
    return f"{digits}{gap}{units[unit]}"
