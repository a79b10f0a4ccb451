"""Shows that this Python's imp serves: starts `imp serve`, and generates over gRPC and over HTTP.

The tokens must be those of tests/data/demo_golden.json, which another library computed. It needs only an environment
with imp, as in the containers of cibuildwheel.
"""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "data" / "demo_golden.json"
SECONDS = 120


def main() -> int:
    """Starts the server, sends a request over each transport, and stops it."""
    first = json.loads(GOLDEN.read_text(encoding="utf-8"))["models"]["target"]["prompts"][0]
    prompt, expected = first["prompt_ids"], first["output_ids"][:16]
    imp = [sys.executable, "-I", "-m", "imp_service"]
    print(subprocess.run([*imp, "--version"], capture_output=True, text=True, check=True).stdout, end="")
    with tempfile.TemporaryDirectory() as folder:
        ready, log = Path(folder) / "ready.json", Path(folder) / "log.txt"
        words = ["serve", "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ready-file", str(ready)]
        with log.open("wb") as stderr:
            server = subprocess.Popen([*imp, *words, "--set", "device.threads=1"], cwd=folder, stderr=stderr)
        try:
            addresses = wait_for(ready, server)
            answers = {"gRPC": over_grpc(addresses["grpc"][0], prompt, len(expected))}
            answers["HTTP"] = over_http(addresses["http"][0], prompt, len(expected))
            server.send_signal(signal.SIGTERM)
            status = server.wait(SECONDS)
        except BaseException:
            print(log.read_text(errors="replace"), file=sys.stderr)
            raise
        finally:
            server.kill()
            server.wait()
    wrong = {protocol: tokens for protocol, tokens in answers.items() if tokens != expected}
    if wrong or status != 0:
        print(f"expected {expected} and exit status 0; found {wrong} and {status}", file=sys.stderr)
        return 1
    print(f"serves over {' and '.join(answers)}: {len(expected)} tokens each are those of the golden file")
    return 0


def wait_for(ready: Path, server: subprocess.Popen[bytes]) -> dict[str, list[str]]:
    """Waits until the server serves; returns its addresses."""
    ends = time.monotonic() + SECONDS
    while not ready.exists():
        if server.poll() is not None or time.monotonic() > ends:
            raise SystemExit(f"imp serve did not start; exit status {server.poll()}")
        time.sleep(0.02)
    found: dict[str, list[str]] = json.loads(ready.read_text())
    return found


def over_grpc(address: str, prompt: list[int], n_tokens: int) -> list[int]:
    """Returns the tokens of a greedy generation over gRPC."""
    import grpc

    from imp_service.pb import inference_pb2 as pb
    from imp_service.pb import inference_pb2_grpc, types_pb2

    request = pb.GenerateRequest(
        token_ids=types_pb2.TokenIds(ids=prompt),
        sampling=types_pb2.SamplingOptions(temperature=0),
        stop=types_pb2.StopOptions(max_tokens=n_tokens, ignore_eos=True),
    )
    with grpc.insecure_channel(address) as channel:
        replies = inference_pb2_grpc.InferenceServiceStub(channel).Generate(request, timeout=SECONDS)
        return [token for reply in replies for token in reply.chunk.token_ids]


def over_http(address: str, prompt: list[int], n_tokens: int) -> list[int]:
    """Returns the tokens of a greedy generation over OpenAI's API."""
    body = {"prompt": prompt, "max_tokens": n_tokens, "temperature": 0, "ignore_eos": True, "return_token_ids": True}
    connection = http.client.HTTPConnection(address.removeprefix("http://"), timeout=SECONDS)
    connection.request("POST", "/v1/completions", json.dumps(body), {"content-type": "application/json"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    tokens: list[int] = answer["choices"][0]["token_ids"]
    return tokens


if __name__ == "__main__":
    sys.exit(main())
