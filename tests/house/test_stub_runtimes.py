"""The committed stubs under the lowest and the highest runtime of pyproject.toml, each in its own environment."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from imp_service.client.target import service_config
from imp_service.rpc.statuses import SOONEST_MS
from support.run.patience import BUILD_SECONDS, HANGS_AFTER

ROOT = Path(__file__).resolve().parents[2]
PB = ROOT / "service" / "imp_service" / "pb"

PAGE_BLOCKS = ("console index", "console")

# One call over a socket with every generated module loaded; warnings are errors.
CALL = """
import sys
from concurrent.futures import ThreadPoolExecutor

import google.protobuf
import grpc
from imp_service.pb import admin_pb2_grpc, inference_pb2, inference_pb2_grpc, model_pb2_grpc, tokenizer_pb2_grpc


class Echo(inference_pb2_grpc.InferenceServiceServicer):
    def GenerateUnary(self, request, context):
        context.set_trailing_metadata([("grpc-retry-pushback-ms", sys.argv[2])])
        context.abort(grpc.StatusCode.UNAVAILABLE, "draining")

    def Generate(self, request, context):
        for token in request.token_ids.ids:
            message = inference_pb2.GenerateResponse()
            message.chunk.token_ids.append(token)
            message.chunk.text = "\\u20ac"
            yield message


server = grpc.server(ThreadPoolExecutor(1))
inference_pb2_grpc.add_InferenceServiceServicer_to_server(Echo(), server)
address = f"unix://{sys.argv[1]}"
server.add_insecure_port(address)
server.start()
request = inference_pb2.GenerateRequest()
request.token_ids.ids.extend([5, 70000])
with grpc.insecure_channel(address) as channel:
    replies = inference_pb2_grpc.InferenceServiceStub(channel).Generate(request)
    print([(list(reply.chunk.token_ids), reply.chunk.text) for reply in replies])
with grpc.insecure_channel(address, options=[("grpc.service_config", sys.argv[3])]) as channel:
    try:
        inference_pb2_grpc.InferenceServiceStub(channel).GenerateUnary(inference_pb2.GenerateUnaryRequest())
    except grpc.RpcError as error:
        print(error.code().name)
server.stop(None).wait()
print(grpc.__version__, google.protobuf.__version__)
"""


def bounds(package: str) -> tuple[str, str]:
    """Returns the lowest accepted version, and the exclusive upper bound."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    pattern = re.compile(rf"{package}>=([0-9.]+),<([0-9]+)")
    (found,) = [found for line in project["dependencies"] if (found := pattern.fullmatch(line))]
    return found[1], found[2]


@pytest.mark.timeout(BUILD_SECONDS + HANGS_AFTER)
@pytest.mark.skipif("IMP_STUB_RUNTIMES" not in os.environ, reason="IMP_STUB_RUNTIMES=1 asks for it: it installs venvs")
def test_rpc_23_the_generator_of_the_page_makes_stubs_for_the_highest_protobuf(tmp_path: Path):
    """As written on the page, with the environment of its own that the page makes."""
    page = (ROOT / "proto" / "README.md").read_text()
    blocks = [re.findall(rf"^```{kind}\n(.*?)^```$", page, re.MULTILINE | re.DOTALL) for kind in PAGE_BLOCKS]
    commands = "".join(block for found in blocks for block in found)
    variables = {"IMP": str(ROOT), "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    subprocess.run(["bash", "-euc", commands], cwd=tmp_path, env=variables, check=True, timeout=BUILD_SECONDS)
    own = tmp_path / "own"
    subprocess.run([sys.executable, "-m", "venv", str(own)], check=True, timeout=HANGS_AFTER)
    low, below = bounds("protobuf")
    wanted = [f"protobuf>={low},<{below}", f"grpcio>={bounds('grpcio')[0]}"]
    subprocess.run([str(own / "bin/pip"), "install", "-q", *wanted], check=True, timeout=BUILD_SECONDS)
    program = "import google.protobuf as p; from imp_api.v1 import inference_pb2_grpc; print(p.__version__)"
    ran = subprocess.run(
        [str(own / "bin/python"), "-c", program],
        env={"PYTHONPATH": str(tmp_path / "stubs")},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert int(ran.stdout.split(".")[0]) == int(below) - 1


@pytest.mark.timeout(BUILD_SECONDS + HANGS_AFTER)
@pytest.mark.skipif("IMP_STUB_RUNTIMES" not in os.environ, reason="IMP_STUB_RUNTIMES=1 asks for it: it installs venvs")
@pytest.mark.parametrize("end", ["lowest", "highest"])
def test_rpc_23_the_stubs_run_on_the_whole_range_of_runtimes(tmp_path: Path, end: str):
    wanted = {}
    for package in ("grpcio", "protobuf"):
        low, below = bounds(package)
        wanted[package] = f"=={low}" if end == "lowest" else f"<{below}"
    subprocess.run([sys.executable, "-m", "venv", str(tmp_path / "venv")], check=True, timeout=HANGS_AFTER)
    python = tmp_path / "venv" / "bin" / "python"
    specifiers = [package + version for package, version in wanted.items()]
    subprocess.run([str(python), "-m", "pip", "install", "-q", *specifiers], check=True, timeout=BUILD_SECONDS)
    package = tmp_path / "src" / "imp_service"
    shutil.copytree(PB, package / "pb", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    ran = subprocess.run(
        [str(python), "-W", "error", "-c", CALL, str(tmp_path / "s"), str(SOONEST_MS), json.dumps(service_config(3))],
        env={"PYTHONPATH": str(tmp_path / "src"), "PATH": os.defpath},
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    replies, code, versions = ran.stdout.splitlines()
    assert replies == "[([5], '€'), ([70000], '€')]"
    assert code == "UNAVAILABLE"  # of a draining server, after retries as soon as imp lets gRPC make them
    found = dict(zip(wanted, versions.split(), strict=True))
    for package_name, version in found.items():
        low, below = bounds(package_name)
        if end == "lowest":
            assert version == low
        else:
            assert int(version.split(".")[0]) == int(below) - 1
