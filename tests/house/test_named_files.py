"""Every file and folder of the sources that README and the pages name exists."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), ROOT / "examples/README.md"]
SOURCES = ("csrc", "service", "proto", "conf", "examples", "tests", "tools", "docs", ".ci", ".github")
_NAMED = re.compile(rf"(?<![\w./-])((?:{'|'.join(map(re.escape, SOURCES))})/[\w./-]*\w)(?![\w*{{<-])")


def missing(text: str) -> set[str]:
    named = {path for span in re.findall(r"`([^`\n]+)`", text) for path in _NAMED.findall(span)}
    return {path for path in named if not (ROOT / path).exists()}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_every_named_file_exists(page):
    assert missing(page.read_text()) == set()


def test_a_name_of_nothing_is_found():
    assert missing("edit `csrc/backend/no_such_file.h`, `docs/serving.md`") == {"csrc/backend/no_such_file.h"}
