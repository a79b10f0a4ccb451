"""A reference to a model on a hub: `hf:OWNER/NAME` or its address, perhaps with `:FILE` or `:TYPE` after it."""

import re
from typing import NamedTuple

from imp_service.cli.failure import CommandError

PREFIX = "hf:"
_REPOSITORY = r"[\w.-]+/[\w.-]+"
_REFERENCE = re.compile(rf"({_REPOSITORY})(?::(.+))?", re.ASCII)


class HubReference(NamedTuple):
    repository: str
    wanted: str | None  # a file, or a type such as Q4_K_M

    def __str__(self) -> str:
        return self.repository if self.wanted is None else f"{self.repository}:{self.wanted}"


def read_reference(word: str) -> HubReference:
    """Raises CommandError."""
    found = _REFERENCE.fullmatch(word.removeprefix(PREFIX))
    if found is None and (address := _read_address(word)) is not None:
        return address
    if found is None or not is_repository(found[1]):
        expected = "OWNER/NAME, OWNER/NAME:FILE or OWNER/NAME:TYPE, such as Qwen/Qwen3-0.6B-GGUF:Q8_0"
        raise CommandError("USAGE", f"{word}: expected {expected}")
    return HubReference(found[1], found[2])


def is_repository(name: str) -> bool:
    return re.fullmatch(_REPOSITORY, name, re.ASCII) is not None and ".." not in name and "--" not in name


def _read_address(word: str) -> HubReference | None:
    """As huggingface.co/OWNER/NAME:TYPE, or the address of a file's page. Raises CommandError."""
    from imp_service.core.checkpoint import read_hub_address  # imported here: it loads the extension

    address = read_hub_address(word)
    if address is None:
        return None
    reference = read_reference(f"{address.repository}:{address.wanted}" if address.wanted else address.repository)
    if address.revision is not None:
        advice = f"write imp pull {reference} --revision {address.revision}"
        raise CommandError("USAGE", f"{word}: names a revision, {advice}")
    return reference
