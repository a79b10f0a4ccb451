"""A coding agent that speaks Anthropic's API repairs a file. The model is held to what a good one would say."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imp_service.api.options import GenerationRequest, SamplingOptions
from imp_service.generation import ModelRuntime
from imp_service.models import demo_model_path
from imp_service.text import ChatPrompt, ConstraintKind, ConstraintSpec
from support.files.context_length import with_context
from support.run.patience import HANGS_AFTER
from support.servers.client_served import serve_for_clients
from support.servers.http_served import DEMO_MODEL
from support.servers.served_models import from_file
from support.text.tool_templates import HERMES

pytest.importorskip("minisweagent", reason="mini-swe-agent is not installed here: pip install '.[clients]'")

CONTEXT = 16_384
DONE = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"
COMMANDS = ("cat add.py", "sed -i 's/a - b/a + b/' add.py && python3 add.py", DONE)
WITHOUT_NETWORK = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "MSWEA_CONFIGURED": "true",
    "MSWEA_COST_TRACKING": "ignore_errors",
}


def said(command: str) -> str:
    """Returns what a model writes that calls the agent's tool."""
    call = json.dumps({"name": "bash", "arguments": {"command": command}})
    return f"Let me see.\n<tool_call>\n{call}\n</tool_call>"


def hold_to(monkeypatch: pytest.MonkeyPatch, answers: tuple[str, ...]) -> list[ChatPrompt]:
    """Each request gets the next answer. Returns a list of their conversations, which grows."""
    asked: list[ChatPrompt] = []
    plan = ModelRuntime.plan

    def held(self: ModelRuntime, request: GenerationRequest, **how: Any) -> Any:
        assert isinstance(request.prompt, ChatPrompt)
        answer = answers[len(asked)]
        asked.append(request.prompt)
        only = ConstraintSpec(ConstraintKind.CHOICES, choices=(answer,))
        return plan(self, replace(request, constraint=only, sampling=SamplingOptions(temperature=0)), **how)

    monkeypatch.setattr(ModelRuntime, "plan", held)
    return asked


def test_msg_11_an_agent_repairs_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    template, model, work = tmp_path / "chat.jinja", tmp_path / "imp-demo.gguf", tmp_path / "work"
    template.write_text(HERMES)
    model.write_bytes(with_context(demo_model_path(), CONTEXT))
    work.mkdir()
    (work / "add.py").write_text("def add(a, b):\n    return a - b\n\n\nprint(add(2, 3))\n")
    asked = hold_to(monkeypatch, tuple(map(said, COMMANDS)))
    settings = (f"model.overrides.chat_template={template}", "kv.bytes=512MiB")
    with serve_for_clients(*settings, model=from_file(model)) as http:
        url = http.url.removesuffix("/v1")
        own = {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": "any", "MSWEA_GLOBAL_CONFIG_DIR": str(tmp_path)}
        command = [sys.executable, "-m", "minisweagent.run.mini", "-m", f"anthropic/{DEMO_MODEL}", "-y"]
        ran = subprocess.run(
            [*command, "--exit-immediately", "-t", "add.py prints -1, not 5: repair it."],
            env={**os.environ, **WITHOUT_NETWORK, **own},
            cwd=work, capture_output=True, text=True, timeout=HANGS_AFTER, check=False,
        )  # fmt: skip
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "return a + b" in (work / "add.py").read_text()
    assert len(asked) == len(COMMANDS)
    roles = [message.role for message in asked[-1].messages]
    assert roles == ["system", "user", "assistant", "tool", "assistant", "tool"]
    shown, printed = (message for message in asked[-1].messages if message.role == "tool")
    assert "return a - b" in shown.text and '"output": "5' in printed.text
