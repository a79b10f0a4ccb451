"""Every command that README and the pages print runs as printed, or is on the list of those that cannot run."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from imp_service.models import demo_draft_model_path, demo_model_path
from support.deploy.imp_client_package import put_together
from support.machine.command_line import clean_environment
from support.models.tiny_vision_models import write_vision_files
from support.models.worded_encoders import write_encoder
from support.models.worded_models import write_worded
from support.run.patience import HANGS_AFTER
from support.servers.server_process import ServerProcess, server_process
from support.servers.vision_served import file_of

ROOT = Path(__file__).resolve().parents[3]
# Pages whose blocks other tests run.
ELSEWHERE = {
    "docs/kubernetes.md": "tests/service/deploy/test_kubernetes_page.py",
    "proto/README.md": "tests/house/test_own_stubs.py",
}
BLOCK = re.compile(r"^```([^\n]+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# .ci/run runs the part before `&&` on this tree. The rest runs here.
INSTALLS = re.compile(r"^pip install \. && ")
# Models of the pages that make vectors, and what they make.
ENCODERS = {"all-MiniLM-L6-v2": "mean", "ms-marco-MiniLM-L6-v2": "rank"}
# Commands that no test can run as printed, and why.
NOT_RUN = {
    r"(IMP_TESTING=ON )?pip install .*": "installs what is under test: .ci/run runs the test command, word by word",
    r"python3 -m venv \.venv && .*": "makes an environment, which the tests have; .ci/run makes one likewise",
    r"imp pull .*": "fetches a model of half a gigabyte from the network",
    r"imp (run|chat|serve) Qwen3-0\.6B-GGUF.*": "needs that model; test_questions.py names one likewise",
    r"imp (run|chat|serve|bench) SmolVLM2-500M-Video.*": "needs that model; docs/serving.md has the same with a file",
    r"imp serve gemma-4-E4B-it-Q8_0\.gguf .*": "needs that model; tests/service/generation/test_draft_head.py has one",
    r"imp certify .*": "ends with 1 for a pair that does not pass; tests/service/cli/test_certify.py asks pairs",
    r"imp call --image .*": "needs a server of such a model; test_images.py asks one",
    r"imp inspect hf:.*": "asks Hugging Face; tests/service/cli/test_inspect_remote.py asks a stand-in on loopback",
    r"python -m smg\.launch_router .*": "needs the package smg; tests/service/gateways runs it in front of two servers",
    r"podman (build|run) .*": "needs podman and the network; tests/image builds the image with buildah",
    r"imp front --to .*": "needs servers at these addresses; tests/service/cli/test_front.py runs one before a server",
    r"serve run conf/ray/serve\.yaml": "needs the extra ray; tests/service/ray_app runs it on other ports",
    r"imp bench --synthetic 0\.6b": "takes minutes and gigabytes; tests/bench runs the same on a small shape",
    r"python tools/(make_model\.py|compare peers) .*": "takes minutes and gigabytes; tests/bench runs a small shape",
    r"python tools/gpu_check\.py (--out|--only|--stages|--wheels) .*": "needs a GPU; tests/gpu runs it emulated",
    r"python tools/gpu_check\.py --gather .*": "fetches packages of NVIDIA from the network",
    r"python tools/gpu_check\.py --dry": "tests/gpu/test_gpu_check.py runs it, in minutes",
}


@dataclass(frozen=True)
class Printed:
    """A block of a page, or a line of one."""

    page: str
    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}: {self.text.splitlines()[0][:50]}"


def pages() -> list[str]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, capture_output=True, text=True, check=True)
    return sorted(set(listed.stdout.split()) - ELSEWHERE.keys())


def blocks(kind: str) -> list[Printed]:
    return [
        Printed(page, kind, text)
        for page in pages()
        for info, text in BLOCK.findall((ROOT / page).read_text())
        if info.split()[0] == kind
    ]


def commands() -> list[Printed]:
    return [
        Printed(block.page, "console", line)
        for block in blocks("console")
        for line in re.sub(r"\\\n\s*", "", block.text).splitlines()  # a backslash continues a line
        if line.strip()
    ]


def reason_not_to(command: Printed) -> str | None:
    text = re.sub(r"\s+#.*$", "", command.text)
    return next((why for pattern, why in NOT_RUN.items() if re.fullmatch(pattern, text)), None)


# Commands that measure for many seconds: in a quick run only their own tests cover them.
TAKES_LONG = re.compile(r"\bimp (bench|admin profile)\b")
RUN = [command for command in commands() if INSTALLS.match(command.text) or reason_not_to(command) is None]
SERVES = [command for command in RUN if re.match(r"(pip install \. && )?imp serve\b", command.text)]
ASKS = [command for command in RUN if command not in SERVES]
PROGRAMS = blocks("python")
# This package is not installed: its own tests build it.
OTHER_PACKAGE = re.compile(r"\bimp_client\b")


def wait_for(ready: Path, process: subprocess.Popen[bytes]) -> None:
    give_up = time.monotonic() + HANGS_AFTER
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < give_up, (ready.parent / "errors.txt").read_text()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.005)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """One server for all commands that call one."""
    folder = tmp_path_factory.mktemp("server")
    words = ("--listen", "127.0.0.1:0", "--listen", f"unix://{folder}/imp.sock", "--http", "127.0.0.1:0")
    # Its file accesses are not checked: one of the commands makes it reread its files.
    with server_process(folder, *words, settings=["listen.admin=127.0.0.1:0"], is_traced=False) as process:
        process.wait_until_ready()
        yield process


def write_files(folder: Path, text: str) -> None:
    """Writes the models, and an image, where a command or a program names them."""
    if "SmolVLM2-500M.gguf" in text:
        model, projector = write_vision_files(folder)
        model.rename(folder / "SmolVLM2-500M.gguf")
        projector.rename(folder / "mmproj-F16.gguf")
        (folder / "cat.jpg").write_bytes(file_of())
    for name, pooling in ENCODERS.items():
        if name in text:
            write_encoder(folder / name, pooling)
            (folder / "lines.txt").write_text("Paris is a city.\nA toaster.\n")
    if "qwen2.5-coder-0.5b.gguf" in text:
        tokens = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|endoftext|>")
        write_worded(folder / "qwen2.5-coder-0.5b.gguf", tokens, eos="<|endoftext|>")


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell with this `imp` and `python`; its folder has a model and a JSON Schema."""
    (tmp_path / "bin").mkdir()
    for name, words in (("imp", "-P -m imp_service"), ("python", "")):
        (tmp_path / "bin" / name).write_text(f'#!/bin/sh\nexec {sys.executable} {words} "$@"\n')
        (tmp_path / "bin" / name).chmod(0o755)
    shutil.copy(demo_model_path(), tmp_path / "model.gguf")
    shutil.copy(demo_draft_model_path(), tmp_path / "draft.gguf")
    (tmp_path / "schema.json").write_text('{"type": "object"}')
    return {**clean_environment(tmp_path), "PATH": f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}"}


def test_every_page_is_run_here_or_by_another_test() -> None:
    assert {page for page in pages() if BLOCK.search((ROOT / page).read_text())} >= {"README.md", "docs/serving.md"}
    for page, test in ELSEWHERE.items():
        assert Path(page).name in (ROOT / test).read_text(), test
    kinds = {info for page in pages() for info, _ in BLOCK.findall((ROOT / page).read_text())}
    assert kinds <= {"console", "python", "json", "ini"}
    assert len(SERVES) >= 3
    assert len(ASKS) > 15


def test_every_reason_not_to_run_a_command_is_needed() -> None:
    texts = [re.sub(r"\s+#.*$", "", command.text) for command in commands()]
    assert [pattern for pattern in NOT_RUN if not any(re.fullmatch(pattern, text) for text in texts)] == []


@pytest.mark.sweep(quick=lambda command: command.page != "examples/README.md")  # README.md has the same command
@pytest.mark.parametrize("command", SERVES, ids=str)
def test_a_command_that_serves_is_ready_and_stops(
    command: Printed, tmp_path: Path, environment: dict[str, str]
) -> None:
    words = INSTALLS.sub("", command.text).replace("/run/imp", str(tmp_path)).replace(":50051", ":0")
    words = re.sub(r"\s+#.*$", "", words)
    words += "" if "--listen" in words else " --listen 127.0.0.1:0"
    words += " --http 127.0.0.1:0" if "--survive" in words and "--http" not in words else ""
    write_files(tmp_path, words)
    words += "" if "--ready-file" in words else f" --ready-file {tmp_path}/ready.json"
    with (tmp_path / "errors.txt").open("w+b") as errors:
        process = subprocess.Popen(["bash", "-c", f"exec {words}"], cwd=tmp_path, env=environment, stderr=errors)
        try:
            wait_for(tmp_path / "ready.json", process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(HANGS_AFTER) == 0
        finally:
            process.kill()
            process.wait()


@pytest.mark.sweep(quick=lambda command: not TAKES_LONG.search(command.text))
@pytest.mark.parametrize("command", ASKS, ids=str)
def test_a_command_ends_well(
    command: Printed, tmp_path: Path, environment: dict[str, str], server: ServerProcess
) -> None:
    if "jq " in command.text and shutil.which("jq") is None:
        pytest.skip("jq is not installed")
    facts = server.wait_until_ready()
    words = command.text.replace("127.0.0.1:50051", facts["grpc"][0]).replace("127.0.0.1:50053", facts["admin"])
    words = words.replace("/run/imp", str(server.folder)).replace("127.0.0.1:8000", facts["http"][0])
    # Without --once it runs until it is stopped: test_top.py runs it in a terminal.
    words = re.sub(r"^imp top\b", "imp top --once", words)
    write_files(tmp_path, words)
    ran = subprocess.run(
        ["bash", "-eu", "-o", "pipefail", "-c", words],
        cwd=tmp_path,
        env={**environment, "IMP_TARGET": facts["grpc"][0]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr


def adapted(program: Printed, server: ServerProcess) -> str:
    """Returns the program with this server's addresses."""
    http = server.wait_until_ready()["http"][0]
    return program.text.replace("127.0.0.1:50051", server.address).replace("127.0.0.1:8000", http)


@pytest.mark.few(3)
@pytest.mark.parametrize("program", [each for each in PROGRAMS if not OTHER_PACKAGE.search(each.text)], ids=str)
def test_a_program_runs(
    program: Printed,
    tmp_path: Path,
    server: ServerProcess,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The program runs in this process, which has already imported most of its modules."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in [name for name in os.environ if name.startswith("IMP_")]:
        monkeypatch.delenv(name)
    write_files(tmp_path, program.text)
    exec(compile(adapted(program, server), program.page, "exec"), {"__name__": "__main__"})
    assert len(capfd.readouterr().out.split()) > 3


@pytest.mark.parametrize("program", [each for each in PROGRAMS if OTHER_PACKAGE.search(each.text)], ids=str)
def test_a_program_of_the_client_runs(program: Printed, tmp_path: Path, server: ServerProcess) -> None:
    put_together(tmp_path)
    command = [sys.executable, "-W", "error", "-c", adapted(program, server)]
    ran = subprocess.run(
        command, cwd=tmp_path, env=clean_environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.split()) > 3


@pytest.mark.parametrize("settings", blocks("ini"), ids=str)
def test_settings_are_read(settings: Printed, tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "imp.conf").write_text(settings.text)
    command = ["imp", "config", "show", "--origin", "--config", "imp.conf"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    assert tomllib.loads(settings.text)
    assert "imp.conf" in ran.stdout


def test_the_ready_file_has_the_keys_of_the_page(server: ServerProcess) -> None:
    (printed,) = blocks("json")
    assert json.loads(printed.text).keys() == server.wait_until_ready().keys()
