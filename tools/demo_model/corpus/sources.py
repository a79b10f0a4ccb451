"""Reads the two public texts of the corpus from their Debian packages, in pure Python, without an installation."""

import io
import re
import subprocess
import tarfile
import zlib
from pathlib import Path

PACKAGES = ("r-cran-janeaustenr", "wordnet-base")
_AR_MAGIC = b"!<arch>\n"
_R_STRING_VECTOR, _R_STRING = 16, 9


def fetch(package: str, folder: Path) -> Path:
    """Returns the package's .deb in `folder`; downloads it with apt-get if it is missing."""
    if not list(folder.glob(f"{package}_*.deb")):
        subprocess.run(["apt-get", "download", "-qq", package], cwd=folder, check=True)
    (found,) = folder.glob(f"{package}_*.deb")
    return found


def deb_member(deb: Path, path: str) -> bytes:
    """Returns the bytes of one file. A .deb is an `ar` archive; its member data.tar.* holds the files."""
    raw = deb.read_bytes()
    if not raw.startswith(_AR_MAGIC):
        raise ValueError(f"{deb}: not a Debian package")
    position = len(_AR_MAGIC)
    while position < len(raw):
        name = raw[position : position + 16].decode("ascii").strip().rstrip("/")
        size = int(raw[position + 48 : position + 58])
        position += 60
        if name.startswith("data.tar"):
            with tarfile.open(fileobj=io.BytesIO(raw[position : position + size])) as tree:
                member = tree.extractfile(path)
                if member is None:
                    raise ValueError(f"{deb}: {path} is not a file")
                return member.read()
        position += size + size % 2
    raise ValueError(f"{deb}: no data.tar member")


def _r_objects(database: bytes) -> list[bytes]:
    """Splits an R lazy-load database: each object is a 4-byte length and a zlib stream."""
    objects, rest = [], database
    while rest:
        stream = zlib.decompressobj()
        objects.append(stream.decompress(rest[4:]))
        rest = stream.unused_data
    return objects


def _r_strings(serialized: bytes) -> list[str]:
    """Decodes an R character vector (XDR serialization, version 2 or 3); [] for any other object."""
    at = 2

    def number() -> int:
        nonlocal at
        at += 4
        return int.from_bytes(serialized[at - 4 : at], "big")

    version, _, _ = number(), number(), number()
    if version == 3:
        name_length = number()
        at += name_length
    if number() & 0xFF != _R_STRING_VECTOR:
        return []
    lines = []
    for _ in range(number()):
        if number() & 0xFF != _R_STRING:
            raise ValueError("expected a string in an R character vector")
        length = number()
        at += length
        lines.append(serialized[at - length : at].decode("utf-8"))
    return lines


def austen_novels(deb: Path) -> list[list[str]]:
    """Returns Jane Austen's six novels, each as its lines."""
    database = deb_member(deb, "./usr/lib/R/site-library/janeaustenr/data/Rdata.rdb")
    novels = [lines for lines in map(_r_strings, _r_objects(database)) if len(lines) > 1000]
    if len(novels) != 6:
        raise ValueError(f"{deb}: found {len(novels)} novels, expected 6")
    return sorted(novels, key=lambda lines: lines[0])


def wordnet_glosses(deb: Path) -> list[tuple[str, str, str]]:
    """Returns (word, part of speech, gloss) of every WordNet synset, in file order."""
    entries = []
    for part in ("noun", "verb", "adj", "adv"):
        text = deb_member(deb, f"./usr/share/wordnet/data.{part}").decode("utf-8")
        for line in text.splitlines():
            if line.startswith("  "):
                continue
            head, _, gloss = line.partition(" | ")
            word = re.sub(r"\(\w+\)$", "", head.split(" ")[4]).replace("_", " ")
            entries.append((word, part, gloss.strip()))
    return entries
