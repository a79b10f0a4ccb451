"""imp doctor: fixed ids, a status for each check, an exit status for scripts; and what the banner says of GPUs."""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

import pytest

from imp_service.cli.doctor import checks
from imp_service.cli.doctor import machine as machine_checks
from imp_service.core import device
from imp_service.core.isa import missing_isa
from support.machine.command_line import demo_with

IDS = [
    "python",
    "package",
    "extension",
    "config",
    "cpu",
    "threads",
    "cpus",
    "numa",
    "memory",
    "huge_pages",
    "tuning",
    "model",
    "text",
    "gpu",
]


def _found(out: str) -> dict[str, dict[str, str]]:
    return {check["id"]: check for check in json.loads(out)["checks"]}


def test_a_machine_that_runs_these_tests_is_runnable(imp, tmp_path):
    result = imp("doctor", "--json")
    document = json.loads(result.stdout)
    assert (result.returncode, result.stderr) == (0, b"")
    assert (document["version"], document["runnable"]) == (1, True)
    assert [check["id"] for check in document["checks"]] == IDS
    assert {check["status"] for check in document["checks"]} <= {"ok", "warning"}
    assert list(tmp_path.iterdir()) == []  # doctor changes nothing


def test_text_and_json_say_the_same(call):
    found = _found(call("doctor", "--json")[1])
    status, out, _ = call("doctor")
    assert status == 0
    for check in found.values():
        assert any(check["id"] in line and line.endswith(check["message"]) for line in out.splitlines()), check


def test_settings_that_cannot_be_used_block(call, tmp_path):
    (tmp_path / "imp.conf").write_text("[kv]\ndtpye = 1\n")
    status, out, _ = call("doctor", "--json")
    found = _found(out)
    assert (status, json.loads(out)["runnable"], found["config"]["status"]) == (1, False, "blocked")
    assert found["config"]["message"].startswith("CONFIG_INVALID: imp.conf:2:kv.dtpye: ")
    assert found["model"]["status"] == "ok"  # the built-in model is not affected


def test_a_model_that_is_not_there_blocks_and_names_the_reason(call):
    status, out, _ = call("doctor", "--json", "--set", "model.path=gone.gguf")
    assert status == 1
    assert _found(out)["model"]["message"].startswith("MODEL_MISSING: gone.gguf")


def test_a_tokenizer_or_a_template_that_cannot_be_used_is_reported(call, tmp_path):
    def told(*words: str) -> tuple[int, str, str]:
        status, out, _ = call("doctor", "--json", *words)
        text = _found(out)["text"]
        return status, text["status"], text["message"]

    def at(old: bytes, new: bytes) -> tuple[str, str]:
        return "--set", f"model.path={demo_with(tmp_path / 'changed.gguf', old, new)}"

    status, found, message = told()
    assert (status, found) == (0, "ok")
    assert "pre-tokenizer qwen2, 2048 tokens; chat template: compiles" in message
    status, found, message = told(*at(b"tokenizer.chat_template", b"tokenizer.chat_untitled"))
    assert (status, found, "no chat template: prompts work, conversations are refused" in message) == (0, "ok", True)
    broken = at(b"{% endfor %}", b"{% endfur %}")
    status, found, message = told(*broken)
    assert (status, found, "a server starts, and refuses conversations" in message) == (0, "warning", True)
    status, found, message = told(*broken, "--set", "model.strict=true")
    assert (status, found, message.startswith("TEMPLATE_INVALID: ")) == (1, "blocked", True)
    status, found, message = told(*at(b"qwen2", b"qwenX"))
    assert (status, found, message.startswith("TOKENIZER_INVALID: tokenizer.ggml.pre: ")) == (1, "blocked", True)
    status, found, message = told("--set", "model.path=gone.gguf")
    assert (status, found, "were not checked" in message) == (1, "warning", True)


def test_a_gpu_that_the_settings_name_and_that_is_not_there_blocks_where_it_is_looked_for(call):
    from imp_service.core.device import find_gpu

    refusal = find_gpu().refusal
    if not refusal:
        pytest.skip("there is a GPU")
    status, out, _ = call("doctor", "--json", "--set", "device.kind=cuda")
    found = _found(out)
    assert status == 1
    assert [check["id"] for check in found.values() if check["status"] == "blocked"] == ["gpu"]
    assert found["gpu"]["message"].startswith("DEVICE_MISSING: ")
    assert refusal in found["gpu"]["message"]
    assert found["model"]["status"] == "warning"
    assert _found(call("doctor", "--json")[1])["gpu"]["status"] == "ok"


def test_an_instruction_set_that_the_cpu_lacks_blocks(call):
    missing = "avx2" if missing_isa("avx2") else "neondot"
    status, out, _ = call("doctor", "--json", "--set", f"device.isa={missing}")
    assert (status, _found(out)["model"]["status"]) == (1, "blocked")
    assert _found(out)["model"]["message"].startswith("DEVICE_MISSING: ")


def test_all_that_is_wrong_with_settings_and_files_is_reported(call, tmp_path):
    status, out, _ = call("doctor", "--json", "--set", "kv.dtype=1", "--set", "nonsense")
    assert (status, _found(out)["config"]["message"].count("CONFIG_INVALID: ")) == (1, 2)
    (tmp_path / "imp.conf").write_text("".join(f"name_{n} = 1\n" for n in range(15)))
    message = _found(call("doctor", "--json")[1])["config"]["message"]
    assert (message.count("CONFIG_INVALID: "), message.rpartition("; ")[2]) == (
        10,
        "and 5 more: imp config check lists them",
    )
    (tmp_path / "imp.conf").unlink()
    words = ("tls.cert=/no.pem", "tls.key=/no.key", "models.second.path=no.gguf")
    status, out, _ = call("doctor", "--json", *(word for text in words for word in ("--set", text)))
    found = _found(out)
    assert (status, [check["id"] for check in found.values() if check["status"] == "blocked"]) == (
        1,
        ["config", "model"],
    )
    assert found["config"]["message"] == (
        "CONFIG_INVALID: --set tls.cert: /no.pem: No such file or directory; "
        "CONFIG_INVALID: --set tls.key: /no.key: No such file or directory"
    )
    assert found["model"]["message"].startswith("MODEL_MISSING: models.second: no.gguf: ")


def test_a_built_in_model_that_was_changed_blocks(call, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("imp_service.models.demo_model_sha256", lambda: "0" * 64)
    status, out, _ = call("doctor", "--json")
    assert status == 1
    assert _found(out)["model"]["message"].startswith("WEIGHTS_CORRUPT: built-in model: sha256 ")


def test_more_threads_than_cpus_is_a_warning_and_no_obstacle(call):
    status, out, _ = call("doctor", "--json", "--set", "device.threads=1000")
    assert (status, _found(out)["threads"]["status"]) == (0, "warning")


def test_memory_that_the_system_does_not_spread_is_a_warning(machine: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(machine)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    for node, cpus in enumerate(("0-3", "4-7")):
        (machine / f"sys/devices/system/node/node{node}").mkdir(parents=True)
        (machine / f"sys/devices/system/node/node{node}/cpulist").write_text(cpus)
    for refusal, status, policy in (("", "ok", "interleave"), ("mbind: not permitted", "warning", "first_touch")):
        monkeypatch.setattr("imp_service._core.interleave_refusal", lambda _, words=refusal: words)
        found = {check.id: check for check in checks.run_checks(Namespace(config=None, assignments=[]), machine)}
        assert (found["numa"].status, found["numa"].message.split()[2]) == (status, policy)
        assert "8 cores, 2 nodes" in found["cpus"].message


def test_a_tuning_of_another_machine_is_a_warning(call, tmp_path: Path):
    assert _found(call("doctor", "--json")[1])["tuning"]["message"].startswith("none: device.tuning is not set")
    key = {"cpu": "another", "isa": "sse", "threads": 1, "kernels": ""}
    (tmp_path / "t.json").write_text(json.dumps({"version": 1, "key": key, "preferences": [], "measured": []}))
    status, out, _ = call("doctor", "--json", "--set", "device.tuning=t.json")
    assert (status, _found(out)["tuning"]["status"]) == (0, "warning")


def test_cpus_that_are_not_there_block(call):
    status, out, _ = call("doctor", "--json", "--set", "device.cpus=8191")
    found = _found(out)
    assert (status, found["cpus"]["status"], "numa" in found) == (1, "blocked", False)
    assert found["cpus"]["message"].startswith("CONFIG_INVALID: --set device.cpus: found 8191, expected CPUs that ")


def test_huge_pages_that_the_settings_forgo_are_no_warning(machine: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(machine)
    arguments = Namespace(config=None, assignments=["device.huge_pages=false"])
    found = {check.id: check for check in checks.run_checks(arguments, machine)}
    assert (found["huge_pages"].status, found["huge_pages"].message[:27]) == ("ok", "device.huge_pages is false:")


def test_l18_bad_usage(call):
    assert call("doctor", "--jsn")[0] == 64


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A root directory with the control files of a small container."""
    for name, text in {
        "proc/self/cgroup": "0::/\n",
        "proc/meminfo": "MemTotal: 8388608 kB\n",
        "sys/fs/cgroup/cpu.max": "150000 100000\n",
        "sys/fs/cgroup/memory.max": "1073741824\n",
        machine_checks.HUGE_PAGES: "always madvise [never]\n",
        device.NVIDIA_DRIVER: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.1\nGCC version: none\n",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_what_a_container_leaves_is_reported_with_its_source(machine: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(machine)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(8)))
    found = {check.id: check for check in checks.run_checks(Namespace(config=None, assignments=[]), machine)}
    assert (found["threads"].status, found["threads"].message) == ("ok", "1 (cpu.max 1.5 -> 1 thread)")
    assert found["cpus"].message == (
        "8 CPUs, 8 cores, 1 node (0-7); device.cpus is none (auto: 1 thread for 8 cores: others may run on the rest)"
    )
    assert found["numa"].message == "device.numa is first_touch (auto: one node for memory, 0)"
    assert found["memory"].message == "memory.max 1.00 GiB"
    assert (found["huge_pages"].status, found["huge_pages"].message.split(":")[0]) == ("warning", "never")
    assert "NVIDIA UNIX x86_64" in found["gpu"].message


Call = Callable[..., tuple[int, str, str]]
ABSENT = "no NVIDIA driver here: cudaErrorInsufficientDriver (35)"
RUN = ("run", "Once", "--max-tokens", "1")


@pytest.fixture
def cuda_build(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[[str | None, str], None]:
    """Returns a function that sets the contents of the driver's file, and the reply of a CUDA build."""

    def make(driver: str | None, refusal: str) -> None:
        path = tmp_path / "driver"
        if driver is not None:
            path.write_text(f"{driver}\nGCC version\n")
        monkeypatch.setattr(device, "NVIDIA_DRIVER", str(path).lstrip("/"))
        monkeypatch.setattr("imp_service._core.find_gpu", lambda: ("", refusal, False))

    return make


def test_l20_a_machine_without_a_gpu_hears_nothing_of_cuda(
    call: Call, cuda_build: Callable[[str | None, str], None]
) -> None:
    cuda_build(None, ABSENT)
    status, _, stderr = call(*RUN)
    assert status == 0
    assert "CPU: " in stderr and "GPU" not in stderr and "cuda" not in stderr.lower()


def test_l20_doctor_says_once_why_there_is_no_gpu(call: Call, cuda_build: Callable[[str | None, str], None]) -> None:
    cuda_build(None, ABSENT)
    out = call("doctor", "--json")[1]
    (gpu,) = (check for check in json.loads(out)["checks"] if check["id"] == "gpu")
    assert gpu["message"] == f"none used: {ABSENT}"
    assert out.count("cudaError") == out.count("NVIDIA") == 1


def test_l20_where_there_is_a_driver_the_banner_points_to_doctor(
    call: Call, cuda_build: Callable[[str | None, str], None]
) -> None:
    cuda_build("NVRM version: 580.1", "the GPU does not answer: cudaErrorUnknown (999)")
    assert "  GPU: not used (imp doctor says why)\n" in call(*RUN)[2]
    assert "  GPU: not used (device.kind is cpu)\n" in call(*RUN, "--set", "device.kind=cpu")[2]
    assert "(NVRM version: 580.1)" in call("doctor")[1]
