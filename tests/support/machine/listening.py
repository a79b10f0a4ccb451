"""Lists the addresses that a process listens on, from /proc."""

from __future__ import annotations

import ipaddress
import os
import re
from pathlib import Path

LISTEN = "0A"
ACCEPTS = 0x10000


def listening_addresses(pid: int | None = None) -> set[str]:
    """Returns texts such as "tcp 127.0.0.1:50051" and "unix /run/imp.sock", from the process's descriptors."""
    root = Path("/proc") / str(pid or os.getpid())
    inodes = _socket_inodes(root)
    found = set()
    for name in ("tcp", "tcp6"):
        for fields in _rows(root / "net" / name):
            if fields[3] == LISTEN and fields[9] in inodes:
                found.add(f"tcp {_address(fields[1])}")
    for fields in _rows(root / "net" / "unix"):
        if int(fields[3], 16) & ACCEPTS and fields[6] in inodes:
            found.add(f"unix {fields[7] if len(fields) > 7 else ''}")
    return found


def _socket_inodes(root: Path) -> set[str]:
    inodes = set()
    for entry in (root / "fd").iterdir():
        try:
            match = re.fullmatch(r"socket:\[(\d+)\]", str(entry.readlink()))
        except FileNotFoundError:  # closed meanwhile
            continue
        if match:
            inodes.add(match[1])
    return inodes


def _rows(path: Path) -> list[list[str]]:
    return [line.split() for line in path.read_text().splitlines()[1:]] if path.exists() else []


def _address(text: str) -> str:
    """Decodes an address. The kernel writes each of its 32-bit words in the machine's byte order."""
    host, _, port = text.partition(":")
    raw = b"".join(bytes.fromhex(host[i : i + 8])[::-1] for i in range(0, len(host), 8))
    address = ipaddress.ip_address(raw)
    mapped = getattr(address, "ipv4_mapped", None)
    shown = f"[::ffff:{mapped}]" if mapped else f"[{address}]" if address.version == 6 else str(address)
    return f"{shown}:{int(port, 16)}"
