"""The distribution imp-client: its contents, and that it works without imp-service."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import venv
from collections.abc import Sequence
from pathlib import Path

import pytest

import imp_service
from support.deploy.imp_client_package import PROJECT, ROOT, packed, put_together, settings
from support.run.patience import BUILD_SECONDS, HANGS_AFTER
from support.servers.served import Served

PACKAGE = ROOT / "service" / "imp_service"
EXAMPLES = sorted((ROOT / "examples" / "imp_client").glob("*.py"))
# Names of the library that the client lacks.
OF_THE_LIBRARY = {"ConfigError", "LanguageModel", "load", "__version__"}
WITHOUT = ("imp_service", "numpy", "tokenizers", "jinja2", "aiohttp")
STORY = ", in a little house near the farm"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder: Path = tmp_path_factory.mktemp("imp_client")
    put_together(folder)
    return folder


def ran(python: str, folder: Path | None, program: str, *arguments: str) -> str:
    words = [python, "-W", "error", "-c", program, *arguments]
    environment = {"PATH": os.defpath} | ({} if folder is None else {"PYTHONPATH": str(folder)})
    done = subprocess.run(words, capture_output=True, text=True, timeout=HANGS_AFTER, env=environment, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_cnt_2_it_packs_the_rooms_of_the_client_whole() -> None:
    sources = set(packed())
    files = [path for path in (PACKAGE / "client").iterdir() if path.name not in ("__pycache__", "bench")]
    assert {PACKAGE / room for room in ("api", "pb", "py.typed")} | set(files) | {ROOT / "proto" / "imp"} == sources
    places = {path.relative_to(PACKAGE).as_posix() for path in sources if path.is_relative_to(PACKAGE)}
    assert {f"imp_client/{place}" for place in places} | {"imp_client/proto/imp"} == set(packed().values())


def test_cnt_2_its_requirements_are_those_of_the_service() -> None:
    service = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    client = settings()["project"]
    assert set(client["dependencies"]) < set(service["dependencies"])
    assert {each.split(">")[0] for each in client["dependencies"]} == {
        *("grpcio", "protobuf", "googleapis-common-protos")
    }
    assert client["requires-python"] == service["requires-python"]


PROGRAM = """
import sys
sys.modules.update(dict.fromkeys(sys.argv[2].split(","), None))  # as if they were not installed
if sys.version_info < (3, 12):
    import warnings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import imp  # the standard library's, in whose place generated stubs would want to be
import imp_client
from imp_client.pb import inference_pb2
with imp_client.connect(sys.argv[1]) as model, model.open(temperature=0) as session:
    print(model.generate("Once upon a time", max_tokens=8, temperature=0).result().text)
    print(session.prefill("Once upon a time").text)
    print(inference_pb2.GenerateRequest.DESCRIPTOR.full_name)
"""


@pytest.mark.long
def test_cnt_2_it_works_without_the_service(package: Path, served: Served) -> None:
    told = ran(sys.executable, package, PROGRAM, served.address, ",".join(WITHOUT))
    assert told.splitlines() == [STORY, ",", "imp.v1.GenerateRequest"]


@pytest.mark.long
def test_cnt_2_it_has_the_names_of_the_library_and_works_beside_it(package: Path) -> None:
    program = (
        "import imp_client, imp_service, sys; from imp_service.pb import inference_pb2 as pb;"
        "print(*imp_client.__all__);"
        "assert [name for name in imp_client.__all__ if not hasattr(imp_client, name)] == [];"
        "assert imp_client.Client is not imp_service.Client and pb.GenerateRequest(text='a').text == 'a';"
        "imp_client.connect('127.0.0.1:1').close(); imp_service.connect('127.0.0.1:1').close();"
        "assert 'numpy' not in sys.modules"
    )
    service = str(Path(imp_service.__file__).parents[1])
    names = ran(sys.executable, package, f"import sys; sys.path.append({service!r});{program}").split()
    assert names == sorted(names)
    assert set(imp_service.__all__) - OF_THE_LIBRARY <= set(names)


def run_example(
    python: str, name: str, *arguments: str, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    environment = {"PATH": os.defpath} | ({} if folder is None else {"PYTHONPATH": str(folder)})
    command = [python, "-W", "error", str(ROOT / "examples" / "imp_client" / f"{name}.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER, env=environment, check=False)


def check_examples(python: str, address: str, folder: Path | None = None) -> None:
    """Checks that each example prints the model's text, reports a failure by its reason, and ends at a deadline."""
    whole = run_example(python, "generate", address, "Once upon a time", "8", folder=folder)
    assert (whole.returncode, whole.stdout) == (0, STORY)
    assert whole.stderr.startswith("[imp demo, seed ") and whole.stderr.endswith("\n[max_tokens, 8 tokens]\n")
    wrong = run_example(python, "generate", address, "Once", "-1", folder=folder)
    assert (wrong.returncode, wrong.stdout) == (1, "")
    head, field = wrong.stderr.strip().splitlines()
    assert head.startswith("FIELD_INVALID: ") and field.startswith("  stop.max_tokens: -1, expected")
    late = run_example(python, "generate", address, "Once", "8", "0.0001", folder=folder)
    assert late.returncode == 1 and "DEADLINE_EXCEEDED: " in late.stderr
    both = run_example(python, "generate_async", address, "8", folder=folder)
    assert (both.returncode, both.stderr) == (0, "")
    assert both.stdout.startswith(f"Once upon a time{STORY}\n\nThe weather today is snowy.")
    failed = run_example(python, "generate_async", address, "100000", folder=folder)
    assert failed.returncode == 1 and "'The weather today': CONTEXT_TOO_LONG: " in failed.stderr
    steps = run_example(python, "steps", address, "Once upon a time", "8", folder=folder)
    mismatch, end = steps.stderr.splitlines()
    assert (steps.returncode, steps.stdout) == (0, f"{STORY}\n")
    assert mismatch.startswith("POSITION_MISMATCH: ") and end == "[11 tokens held]"


@pytest.mark.long
def test_cnt_2_the_examples_run(package: Path, served: Served) -> None:
    check_examples(sys.executable, served.address, package)
    served.wait_for_rest()


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A new environment with the wheel and a type checker."""
    folder = tmp_path_factory.mktemp("installed")
    words = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(PROJECT)]
    subprocess.run(words, check=True, timeout=BUILD_SECONDS)
    (wheel,) = folder.glob("imp_client-*.whl")
    assert wheel.name == f"imp_client-{imp_service.__version__}-py3-none-any.whl"
    venv.create(folder / "venv", with_pip=True)
    python = str(folder / "venv" / "bin" / "python")
    # The installation finds no compiler.
    types = ("mypy>=1.15", "types-grpcio>=1.80", "types-protobuf>=6.30")
    words = [python, "-m", "pip", "install", "--quiet", "--only-binary=:all:", str(wheel), *types]
    subprocess.run(words, check=True, timeout=BUILD_SECONDS, env={**os.environ, "PATH": os.defpath, "CC": "false"})
    return python


def checked_types(python: str, *words: str) -> str:
    command = [python, "-m", "mypy", "--strict", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER, check=False).stdout


apart = pytest.mark.skipif(
    "IMP_CLIENT_WHEEL" not in os.environ, reason="IMP_CLIENT_WHEEL=1 asks for it: it installs a venv"
)


@apart
@pytest.mark.timeout(2 * BUILD_SECONDS + HANGS_AFTER)
def test_cnt_2_the_wheel_works_in_an_environment_of_its_own(installed: str, served: Served) -> None:
    absent = f"import importlib.util as u; print([n for n in {WITHOUT!r} if u.find_spec(n)])"
    assert ran(installed, None, absent) == "[]\n"
    assert ran(installed, None, PROGRAM, served.address, "nothing").splitlines()[0] == STORY
    check_examples(installed, served.address)
    served.wait_for_rest()


@apart
@pytest.mark.timeout(2 * BUILD_SECONDS + HANGS_AFTER)
def test_cnt_2_the_examples_pass_a_strict_check_of_types(installed: str, tmp_path: Path) -> None:
    examples: Sequence[str] = [str(path) for path in EXAMPLES]
    assert len(examples) == 3
    assert "no issues found in 3 source files" in checked_types(installed, *examples)
    wrong = tmp_path / "wrong.py"
    wrong.write_text(
        "import grpc, imp_client\n"
        "from imp_client.pb import inference_pb2, inference_pb2_grpc\n"
        "imp_client.connect(7)\n"
        "imp_client.connect(tokn='a')\n"
        "text: int = imp_client.connect().generate('a').result().text\n"
        "stub = inference_pb2_grpc.InferenceServiceStub(grpc.insecure_channel('a'))\n"
        "n: int = stub.GenerateUnary(inference_pb2.GenerateUnaryRequest()).sequences[0].output.text\n"
    )
    told = checked_types(installed, str(wrong))
    assert [line.split(":")[1] for line in told.splitlines() if ": error:" in line] == ["3", "4", "5", "7"]
