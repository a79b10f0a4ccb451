"""The `llm` tool as a client of imp: a model in its file of OpenAI-compatible models (OAI-5)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.run.patience import HANGS_AFTER
from support.servers.http_served import DEMO_MODEL, HttpServed

pytest.importorskip("llm", reason="llm is not installed here: pip install '.[clients]'")
MODELS = """\
- model_id: imp
  model_name: {model}
  api_base: "{url}"
  supports_schema: true
"""
Llm = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def llm(http: HttpServed, tmp_path: Path) -> Llm:
    """Runs `llm` as a user who has added imp's model."""
    (tmp_path / "extra-openai-models.yaml").write_text(MODELS.format(model=DEMO_MODEL, url=http.url))
    environment = {**os.environ, "LLM_USER_PATH": str(tmp_path), "OPENAI_API_KEY": "any"}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "llm", *words],
            env=environment, capture_output=True, text=True, timeout=HANGS_AFTER, check=False,
        )  # fmt: skip

    return run


def expected(http: HttpServed) -> str:
    content: str = http.chat("Hello", max_tokens=12, temperature=0).choice["message"]["content"]
    return content.strip()


@pytest.mark.parametrize("how", [[], ["--no-stream"]])
def test_oai_5_the_answer_of_the_server(llm: Llm, http: HttpServed, how: list[str]) -> None:
    ran = llm("-m", "imp", "-o", "max_tokens", "12", "-o", "temperature", "0", *how, "Hello")
    assert (ran.returncode, ran.stdout.strip()) == (0, expected(http)), ran.stderr


def test_oai_5_a_schema_is_kept(llm: Llm) -> None:
    schema = {
        "type": "object",
        "properties": {"days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["days"],
        "additionalProperties": False,
    }
    ran = llm("-m", "imp", "--schema", json.dumps(schema), "How many?")
    assert ran.returncode == 0, ran.stderr
    assert 1 <= json.loads(ran.stdout)["days"] <= 9


def test_oai_5_an_error_is_shown(llm: Llm) -> None:
    ran = llm("-m", "imp", "-o", "temperature", "2", "the " * 20_000)
    assert ran.returncode != 0 and "context" in ran.stderr.lower(), ran.stderr
