"""Finds and reads imp.conf: the search order, and a read that cannot hang or exceed a size."""

import os
import stat
from dataclasses import dataclass
from pathlib import Path

from imp_service.config.errors import ConfigError
from imp_service.config.sources import Environment

MAX_FILE_BYTES = 1024**2


@dataclass(frozen=True, slots=True)
class CandidateFile:
    path: Path
    # The option or variable that names it: then it must exist. None: it may be missing.
    named_by: str | None = None


def candidates(option: str | None, environment: Environment, root: Path = Path("/")) -> tuple[CandidateFile, ...]:
    """The paths of imp.conf in search order. Only the first that exists is read."""
    if option is not None:
        return (CandidateFile(_named(option, "--config"), "--config"),)
    if environment.config is not None:
        return (CandidateFile(_named(environment.config, "IMP_CONFIG"), "IMP_CONFIG"),)
    home = (CandidateFile(Path(environment.home, ".config/imp/imp.conf")),) if environment.home else ()
    return (CandidateFile(Path("imp.conf")), *home, CandidateFile(root / "etc/imp/imp.conf"))


def _named(text: str, by: str) -> Path:
    if not text or "\0" in text:
        raise ConfigError(by, "found no path, expected the path of a file")
    return Path(text)


def read_first(order: tuple[CandidateFile, ...]) -> tuple[Path, str] | None:
    """The first candidate that exists, and its text; None if there is none and none was named."""
    for candidate in order:
        where = f"{candidate.named_by}: {candidate.path}" if candidate.named_by else str(candidate.path)
        try:
            return candidate.path, _decode(_read(candidate.path, where), where)
        except (FileNotFoundError, NotADirectoryError):
            if candidate.named_by:
                raise ConfigError(where, "no such file") from None
        except PermissionError:
            raise ConfigError(where, "may not be read", reason="CONFIG_PERMISSION") from None
        except OSError as error:
            raise ConfigError(where, f"cannot be read: {error.strerror}") from None
    return None


def _read(path: Path, where: str) -> bytes:
    # Non-blocking: opening a FIFO without a writer would wait for ever.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        kind = os.fstat(descriptor).st_mode
        if not stat.S_ISREG(kind):
            found = "directory" if stat.S_ISDIR(kind) else "special file"
            raise ConfigError(where, f"found a {found}, expected a regular file")
        content = b""
        while len(content) <= MAX_FILE_BYTES and (part := os.read(descriptor, MAX_FILE_BYTES + 1 - len(content))):
            content += part
    finally:
        os.close(descriptor)
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(where, f"found more than {MAX_FILE_BYTES} bytes, expected at most that")
    return content


def _decode(content: bytes, where: str) -> str:
    if content.startswith(b"\xef\xbb\xbf"):
        raise ConfigError(f"{where}:1", "found a byte order mark, expected UTF-8 without one")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{where}:{line}", f"found byte 0x{content[error.start]:02x}, expected UTF-8") from None
