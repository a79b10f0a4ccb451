"""Finds files, connections and processes that a server's configuration does not name, from a hook or strace."""

from __future__ import annotations

import ipaddress
import json
import mimetypes
import os
import re
import ssl
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.machine.command_line import FOUND_IN

HOOK = Path(__file__).parent / "traced"

# Packages may also be in another environment, which a .pth file adds.
_PACKAGES = [folder for folder in sys.path if Path(folder).name in ("site-packages", "dist-packages")]
_CODE = (sys.prefix, sys.base_prefix, os.path.realpath(sys.prefix), str(FOUND_IN), str(HOOK), *_PACKAGES)
# Files of the loader, libc and OpenSSL; information from the kernel.
_SYSTEM = ("/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/share/locale", "/usr/share/zoneinfo", "/proc", "/sys")
# The only program that a server starts; it compiles constraints.
_WORKER = re.compile(r"""['"]-I['"], ['"]-S['"], ['"][^'"]*/imp_service/text/constraints/trial_worker\.py['"]""")
_SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/ld.so.preload", "/etc/localtime", "/dev/null", "/dev/urandom")

# gRPC initializes its resolver when it opens ports. A real lookup would also connect, and so be found.
_RESOLVER_FILES = ("/etc/resolv.conf", "/etc/nsswitch.conf", "/etc/netsvc.conf", "/etc/svc.conf")

# aiohttp, which serves HTTP, reads the system's tables of file types when it is imported.
_FILE_TYPES = tuple(mimetypes.knownfiles)
# The same import loads the certificates that OpenSSL trusts, for aiohttp's client.
_CERTIFICATES = (ssl.get_default_verify_paths().cafile, ssl.get_default_verify_paths().capath)


@dataclass(frozen=True)
class Act:
    """One access: `kind` is read, write, connect, look up or start."""

    kind: str
    subject: str | None


@dataclass(frozen=True)
class Configured:
    """The configuration of a server: its folder (home and working directory), its ready file, its arguments."""

    folder: Path
    ready_file: Path
    words: Sequence[str]

    def problems_in(self, acts: Iterable[Act]) -> list[str]:
        """Returns the accesses that the configuration does not name, each once (G9)."""
        named = tuple(self._named())
        found = {act: None for act in acts if not self._is_configured(act, named)}
        return [f"G9: {act.kind} {act.subject}" for act in found]

    def _is_configured(self, act: Act, named: tuple[str, ...]) -> bool:
        subject = act.subject
        if act.kind == "look up":
            return subject is None or _is_number(subject)
        if subject is None:
            return False
        if act.kind == "start":
            return _WORKER.search(subject) is not None
        if act.kind == "connect":
            return subject in named  # its own listening socket: it checks whether another server uses it
        if act.kind == "write":
            return self._may_write(subject, named)
        return (
            subject in (*_SYSTEM_FILES, *_RESOLVER_FILES, *_FILE_TYPES, *_CERTIFICATES, *self._places_of_settings())
            or subject in map(os.path.dirname, self._sockets(named))
            or _is_below(subject, (*_CODE, *_SYSTEM, *named))
        )

    def _may_write(self, subject: str, named: tuple[str, ...]) -> bool:
        ready = self.ready_file
        own = (
            subject == str(ready)
            or re.fullmatch(rf"\.{re.escape(ready.name)}\.[0-9a-f]{{16}}", Path(subject).name) is not None
        )
        if own and Path(subject).parent == ready.parent:
            return True
        compiled = "__pycache__" in subject and _is_below(subject, _CODE)
        return compiled or subject in ("/dev/null", "/proc/self/oom_score_adj") or subject in self._sockets(named)

    def _places_of_settings(self) -> list[str]:
        below_home = self.folder / ".config/imp/imp.conf"
        return [str(self.folder / "imp.conf"), str(below_home), "/etc/imp/imp.conf"]

    def _sockets(self, named: tuple[str, ...]) -> set[str]:
        text = "\n".join([*self.words, *self._settings_files()])
        return {path for path in named if f"unix://{path}" in text}

    def _settings_files(self) -> Iterator[str]:
        for word, path in zip(self.words, self.words[1:], strict=False):
            if word == "--config" and (self.folder / path).is_file():
                yield (self.folder / path).read_text()

    def _named(self) -> Iterator[str]:
        """Yields the paths in the arguments and in settings files, and the targets of links among them."""
        for text in self.words:
            yield from self._both(text.rpartition("=")[2].removeprefix("unix://").strip('"'))
        for content in self._settings_files():
            for path in re.findall(r'"(?:unix://)?(/[^"]+)"', content):
                yield from self._both(path)

    def _both(self, text: str) -> Iterator[str]:
        if "/" in text or (self.folder / text).is_file():
            path = os.path.normpath(self.folder / text)
            yield path
            yield os.path.realpath(path)


def _is_below(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(place.rstrip("/") + "/") for place in places)


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def acts_inside(trace: Path) -> list[Act]:
    """Returns the accesses that the hook in `traced` wrote; ignores a line that the end of the process cut off."""
    lines = trace.read_text().splitlines()
    return [Act(*json.loads(line)) for line in lines if line.endswith("]")]


_OPEN = re.compile(r'\bopen(?:at)?\((?:AT_FDCWD, )?"((?:[^"\\]|\\.)*)", ([A-Z_|]+)')
_CONNECT = re.compile(r"\b(?:connect|sendto)\(.*?\{sa_family=AF_\w+, (.*?)\}")


def acts_of_strace(output: Path, folder: Path) -> list[Act]:
    """Reads `strace -f -e trace=openat,connect,sendto,execve` of a process that started in `folder`."""
    acts = []
    for line in output.read_text(errors="replace").splitlines():
        if opened := _OPEN.search(line):
            writes = re.search(r"O_(WRONLY|RDWR|CREAT|TRUNC|APPEND)", opened[2])
            acts.append(Act("write" if writes else "read", os.path.normpath(folder / opened[1])))
        elif reached := _CONNECT.search(line):
            path = re.search(r'sun_path=@?"([^"]*)"', reached[1])
            acts.append(Act("connect", path[1] if path else reached[1]))
        elif "execve(" in line:
            acts.append(Act("start", line.partition("execve(")[2]))
    return acts
