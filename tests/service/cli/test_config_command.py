"""imp config show, check and init, from the command line."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from imp_service.cli.shell import main
from imp_service.config import ConfigError, Settings, read_settings
from imp_service.config.read_settings import MOST_ERRORS
from imp_service.core.device import find_gpu
from imp_service.models import demo_model_path
from support.run.patience import HANGS_AFTER
from support.servers.certificates import Authority

GOOD = "%s set, all good; weights were not read\n"
UNLOOKED = "imp: warning: not checked: the device, and whether models fit in its memory\n"
SHIPPED = Path(__file__).parents[3] / "conf/imp.conf"


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty directory, and no environment variable of imp."""
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("IMP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    return tmp_path


def test_cfg_6_show_prints_each_value_with_its_origin(
    machine: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
):
    (machine / "imp.conf").write_text("[kv]\nblock_tokens = 32\n")
    monkeypatch.setenv("IMP_KV__DTYPE", "f32")
    assert main(["config", "show", "--origin", "--set", "kv.prefix_cache=false"]) == 0
    rows = dict(line.split("  # ") for line in capfd.readouterr().out.splitlines())
    shown = {line.rstrip(): origin for line, origin in rows.items()}
    assert shown["kv.block_tokens = 32"] == "imp.conf:2"
    assert shown['kv.dtype = "f32"'] == "IMP_KV__DTYPE"
    assert shown["kv.prefix_cache = false"] == "--set"
    assert shown["scheduler.max_running = 64"] == "default"
    (threads,) = [line for line in shown if line.startswith("device.threads = ")]
    assert shown[threads].startswith("auto: ")
    assert threads.partition(" = ")[2].isdigit()


def test_cfg_6_show_as_json(capfd: pytest.CaptureFixture[str]):
    assert main(["config", "show", "--json", "--set", "scheduler.max_wait=90s"]) == 0
    shown = json.loads(capfd.readouterr().out)
    assert shown["scheduler.max_wait"] == "90s"
    assert shown["kv.block_tokens"] == 16


def test_check_says_what_it_read(machine: Path, capfd: pytest.CaptureFixture[str]):
    assert main(["config", "check"]) == 0
    assert capfd.readouterr().out == f"no imp.conf: {GOOD % '0 keys'}"
    (machine / "mine.conf").write_text("[kv]\nblock_tokens = 32\n")
    assert main(["config", "check", "--config", "mine.conf"]) == 0
    assert capfd.readouterr().out == f"mine.conf: {GOOD % '1 key'}"


@pytest.mark.parametrize("action", ["show", "check"])
def test_cfg_3_l07_a_bad_file_ends_with_78_and_an_error(action: str, machine: Path, capfd: pytest.CaptureFixture[str]):
    (machine / "imp.conf").write_text("[scheduler]\nmax_runing = 8\n")
    assert main(["config", action]) == 78
    assert capfd.readouterr() == (
        "",
        "imp: error: CONFIG_INVALID: imp.conf:2:scheduler.max_runing: "
        "unknown key; nearest known: scheduler.max_running\n" + (UNLOOKED if action == "check" else ""),
    )


def check(capfd: pytest.CaptureFixture[str], *assignments: str) -> tuple[int, list[str]]:
    """Returns the status and the lines on stderr without their common prefix."""
    status = main(["config", "check", *(word for text in assignments for word in ("--set", text))])
    out, err = capfd.readouterr()
    assert out.endswith("weights were not read\n") == (status == 0)
    return status, [line.removeprefix("imp: error: ") for line in err.splitlines()]


def test_cfg_13_check_tells_every_bad_key(machine: Path, capfd: pytest.CaptureFixture[str]):
    (machine / "imp.conf").write_text("[scheduler]\nmax_runing = 8\nmax_waiting = 0\n[unknown]\na = 1\nb = 2\n")
    status, told = check(capfd, "kv.dtype=3", "nonsense", "model.name=good")
    assert (status, told.pop()) == (78, UNLOOKED.strip())
    assert len(told) == 5
    for line, begin in zip(
        told,
        (
            "imp.conf:2:scheduler.max_runing: unknown key; ",
            "imp.conf:3:scheduler.max_waiting: found 0, ",
            "imp.conf:4:unknown: unknown key; ",
            "--set kv.dtype: found 3, ",
            "--set: found nonsense, ",
        ),
        strict=True,
    ):
        assert line.startswith(f"CONFIG_INVALID: {begin}")
    status, told = check(capfd)
    assert (status, len(told)) == (78, 4)


def test_cfg_13_a_bad_key_hides_no_file(capfd: pytest.CaptureFixture[str]):
    words = ("kv.dtype=3", "auth.token_file=no", "model.overrides.chat_template=no.jinja", "models.second.path=no.gguf")
    status, told = check(capfd, *words)
    assert (status, [line.partition(" no")[0] for line in told[:-1]]) == (
        78,
        [
            'CONFIG_INVALID: --set kv.dtype: found 3, expected "auto" or "f32", "f16", "bf16", "q8_0", "rot8", '
            '"rot4", "rot3" or "rot2", or two of them as "keys/values"',
            "CONFIG_INVALID: --set auth.token_file:",
            "CONFIG_INVALID: --set model.overrides.chat_template:",
            "MODEL_MISSING: models.second:",
        ],
    )


def test_cfg_13_secrets_are_read_as_a_server_reads_them(machine: Path, capfd: pytest.CaptureFixture[str]):
    (machine / "tokens").touch()
    Authority().issue().write(machine)
    (machine / "key.pem").write_text("")
    status, told = check(capfd, "auth.token_file=tokens", "tls.cert=cert.pem", "tls.key=key.pem")
    assert (status, len(told)) == (78, 2)
    assert told[0].startswith("CONFIG_INVALID: tls.key: key.pem: found no private key in PEM")
    assert told[1].startswith("CONFIG_INVALID: auth.token_file: tokens: found no token, expected a line for each")


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("assignments", "status", "expected"),
    [
        (("model.path=/no/such.gguf",), 66, ["MODEL_MISSING: /no/such.gguf: No such file"]),
        (("models.second.path=no.gguf",), 66, ["MODEL_MISSING: models.second: no.gguf: No such file"]),
        (
            (
                f"models.second.path={demo_model_path()}",
                "models.second.overrides.chat_template=no.jinja",
                "models.second.overrides.gemm.q8_0=q8_0_dp4a",
            ),
            78,
            [
                "CONFIG_INVALID: --set models.second.overrides.chat_template: no.jinja: No such file",
                "OVERRIDE_INVALID: models.second: gemm.q8_0 = q8_0_dp4a: is a kernel of cuda, and the device is cpu",
            ],
        ),
        (
            ("models.second.path=no.gguf", "models.second.overrides.gemm.q4k=foo"),
            66,
            [
                "MODEL_MISSING: models.second: no.gguf: ",
                "OVERRIDE_INVALID: --set models.second.overrides.gemm.q4k: names no tensor",
            ],
        ),
        (("device.tuning=no.json",), 78, ["CONFIG_INVALID: device.tuning: no.json: no such file"]),
        (("auth.token_file=no",), 78, ["CONFIG_INVALID: --set auth.token_file: no: No such file"]),
        (
            ("model.overrides.chat_template=.",),
            78,
            ["CONFIG_INVALID: --set model.overrides.chat_template: .: Is"],
        ),
        (("device.cpus=8191",), 78, ["CONFIG_INVALID: --set device.cpus: found 8191, "]),
        (("model.overrides.gemm.q4k=reference",), 78, ["OVERRIDE_INVALID: gemm.q4k = reference: matches no tensor"]),
        (("model.overrides.gemm.q4_k=foo",), 78, ["OVERRIDE_INVALID: gemm.q4_k = foo: no such kernel"]),
        (
            ("model.overrides.eos_token_ids=[1000000]", "model.overrides.gemm.q8_0=reference"),
            78,
            ["OVERRIDE_INVALID: "],
        ),
        (("kv.bytes=64TiB",), 71, ["NO_MEMORY: weights "]),
        (
            ("tls.cert=no.pem", "tls.key=no.key", "model.path=no.gguf", "model.overrides.gemm.q4k=foo"),
            78,
            [
                "CONFIG_INVALID: --set tls.cert: no.pem: No such file",
                "CONFIG_INVALID: --set tls.key: no.key: No such file",
                "MODEL_MISSING: no.gguf: ",
                "OVERRIDE_INVALID: --set model.overrides.gemm.q4k: names no tensor, and is none of the",
            ],
        ),
        (
            ("model.overrides.gemm.q4k=foo", "model.overrides.gemm.q8_0=q8_0_dp4a", "model.overrides.gemm.f16=bar"),
            78,
            [
                "OVERRIDE_INVALID: gemm.q4k = foo: ",
                "OVERRIDE_INVALID: gemm.q8_0 = q8_0_dp4a: is a kernel of cuda, and the device is cpu",
                "OVERRIDE_INVALID: gemm.f16 = bar: no such kernel; known: ",
            ],
        ),
        (
            ("model.path=no.gguf", "model.overrides.gemm.q8_0=q8_0_dp4a", "model.overrides.gemm.f16=bar"),
            66,
            [
                "MODEL_MISSING: no.gguf: ",
                "OVERRIDE_INVALID: --set model.overrides.gemm.q8_0: q8_0_dp4a is a kernel of cuda, and",
                "OVERRIDE_INVALID: --set model.overrides.gemm.f16: bar: no such kernel of cpu",
            ],
        ),
        (
            ("device.cpus=8191", "model.overrides.gemm.f16=bar", "model.overrides.gemm.q8_0=reference"),
            78,
            ["CONFIG_INVALID: --set device.cpus: ", "OVERRIDE_INVALID: --set model.overrides.gemm.f16: bar: no such"],
        ),
        (("device.kind=cuda_emulated",), 65, ["MODEL_UNSUPPORTED: weights of "]),
    ],
)
def test_cfg_13_check_tells_all_that_would_end_a_start(
    assignments: tuple[str, ...], status: int, expected: list[str], capfd: pytest.CaptureFixture[str]
):
    found, told = check(capfd, *assignments)
    assert (found, len(told)) == (status, len(expected)), told
    assert all(line.startswith(begin) for line, begin in zip(told, expected, strict=True)), told


def test_cfg_13_check_takes_what_a_start_takes(machine: Path, capfd: pytest.CaptureFixture[str]):
    Authority().issue().write(machine)
    (machine / "second").mkdir()  # refers to the entry of [models], although a directory has its name
    (machine / "chat.jinja").write_text("{{ messages }}")
    words = (
        *("tls.cert=cert.pem", "tls.key=key.pem", "model.overrides.chat_template=chat.jinja"),
        *("model.overrides.gemm.q8_0=reference", 'model.overrides.gemm."blk.*.ffn_down.weight"=reference'),
        f"models.second.path={demo_model_path()}",
    )
    assert check(capfd, *words) == (0, [])


def test_cfg_13_check_tells_a_gpu_that_is_not_there(capfd: pytest.CaptureFixture[str]):
    if not find_gpu().refusal:
        pytest.skip("there is a GPU")
    status, told = check(capfd, "device.kind=cuda", "model.overrides.gemm.q4k=foo")
    assert (status, len(told)) == (69, 2)
    assert told[0].startswith("DEVICE_MISSING: ")
    assert told[1].startswith("OVERRIDE_INVALID: --set model.overrides.gemm.q4k: names no tensor")


@pytest.mark.long
def test_cfg_13_a_file_of_nothing_but_unknown_keys_is_soon_given_up(
    machine: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    (machine / "imp.conf").write_text("".join(f"name_{n} = 1\n" for n in range(3000)))
    status, told = check(capfd)
    assert (status, len(told)) == (78, MOST_ERRORS + 1)
    assert told[-1] == f"imp: warning: stopped after {MOST_ERRORS} errors: the rest was not read"
    searched: list[object] = []
    monkeypatch.setattr("imp_service.config.check.nearest_key", lambda *words: searched.append(words) or "a")
    with pytest.raises(ConfigError):
        read_settings()
    assert len(searched) == 1


def test_cfg_13_what_can_be_read_once_is_left_to_the_start(capfd: pytest.CaptureFixture[str]):
    reader, writer = os.pipe()
    os.write(writer, b"secret")
    assert check(capfd, f"auth.token_file=/dev/fd/{reader}") == (0, [])
    assert os.read(reader, 100) == b"secret"
    os.close(writer)
    assert check(capfd, f"auth.token_file=/dev/fd/{reader}") == (0, [])
    os.close(reader)


def test_cfg_4_l09_a_named_file_that_is_missing_ends_with_78(capfd: pytest.CaptureFixture[str]):
    assert main(["config", "show", "--config", "nowhere.conf"]) == 78
    assert capfd.readouterr().err == "imp: error: CONFIG_INVALID: --config: nowhere.conf: no such file\n"


@pytest.mark.long
def test_cfg_5_kubernetes_variables_change_nothing(machine: Path):
    """The command runs in its own process, with the variables of a Kubernetes Service named imp."""
    result = subprocess.run(
        [sys.executable, "-m", "imp_service", "config", "check"],
        env={
            "PATH": "/usr/bin",
            "PYTHONPATH": ":".join(sys.path),
            "IMP_SERVICE_HOST": "10.0.0.7",
            "IMP_SERVICE_PORT_GRPC": "50051",
            "IMP_PORT_50051_TCP_ADDR": "10.0.0.7",
        },
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=False,
    )
    assert (result.returncode, result.stdout, result.stderr) == (
        0,
        f"no imp.conf: {GOOD % '0 keys'}",
        "",
    )


def test_cfg_1_init_writes_the_shipped_file_and_never_over_another(machine: Path, capfd: pytest.CaptureFixture[str]):
    assert main(["config", "init", "new.conf"]) == 0
    assert (machine / "new.conf").read_bytes() == SHIPPED.read_bytes()
    assert read_settings("new.conf", variables={}).settings == Settings()
    (machine / "new.conf").write_text("mine")
    capfd.readouterr()
    assert main(["config", "init", "new.conf"]) == 73
    assert capfd.readouterr().err == "imp: error: CANNOT_CREATE: new.conf: File exists\n"
    assert (machine / "new.conf").read_text() == "mine"


def test_init_to_stdout(capfd: pytest.CaptureFixture[str]):
    assert main(["config", "init", "-"]) == 0
    assert capfd.readouterr().out == SHIPPED.read_text(encoding="utf-8")
