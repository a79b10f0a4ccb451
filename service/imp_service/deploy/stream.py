"""Documents as one YAML stream, for kubectl and for people: key order kept, texts of several lines as blocks."""

from collections.abc import Sequence
from typing import TextIO

import yaml

from imp_service.deploy.bases import Document


class _Writer(yaml.SafeDumper):
    """Writes shared nodes twice: nobody reads anchors in a manifest."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _write_text(writer: _Writer, text: str) -> yaml.ScalarNode:
    return writer.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Writer.add_representer(str, _write_text)


def write_stream(out: TextIO, comments: Sequence[str], documents: Sequence[Document]) -> None:
    """`comments` go before the first document."""
    out.write("".join(f"# {line}\n" for line in comments))
    yaml.dump_all(documents, out, Dumper=_Writer, sort_keys=False, explicit_start=True, width=120, allow_unicode=True)
