"""Runs a process as if its kernel had no IPv6: a filter of system calls answers in place of the kernel.

`python without_ipv6.py COMMAND…` becomes the command.
"""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import socket
import struct
import sys

NO_NEW_PRIVS, SET_SECCOMP, MODE_FILTER = 38, 22, 2
LOAD_WORD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
# The number of socket(2), and the offsets at which the filter finds a call's number and first argument.
NUMBER = {"x86_64": 41, "aarch64": 198}
AT_NUMBER, AT_FIRST_ARGUMENT = 0, 16


def deny() -> None:
    """Makes socket(AF_INET6, …) fail with EAFNOSUPPORT from now on, also after exec."""
    program = b"".join(
        struct.pack("HBBI", *row)
        for row in (
            (LOAD_WORD, 0, 0, AT_NUMBER),
            (JUMP_IF_EQUAL, 0, 3, NUMBER[platform.machine()]),
            (LOAD_WORD, 0, 0, AT_FIRST_ARGUMENT),
            (JUMP_IF_EQUAL, 0, 1, socket.AF_INET6),
            (RETURN, 0, 0, FAIL | errno.EAFNOSUPPORT),
            (RETURN, 0, 0, ALLOW),
        )
    )
    rows = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxQ", len(program) // 8, ctypes.addressof(rows)))
    libc = ctypes.CDLL(None, use_errno=True)
    for words in ((NO_NEW_PRIVS, 1, 0, 0, 0), (SET_SECCOMP, MODE_FILTER, ctypes.addressof(header), 0, 0)):
        if libc.prctl(*(ctypes.c_ulong(word) for word in words)) != 0:
            raise OSError(ctypes.get_errno(), "prctl")


if __name__ == "__main__":
    deny()
    os.execv(sys.argv[1], sys.argv[1:])
