"""Clients in other languages read the details of every failure in the error table."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from imp_service.api.errors import Violation
from imp_service.pb.inference_pb2 import GenerateRequest, GenerateResponse
from imp_service.rpc.statuses import ADVICE, message_of, status_code, trailing_metadata
from imp_service.serving.errors.error_table import ERRORS, Detail
from imp_service.serving.errors.failure import Failure
from support.run.patience import BUILD_SECONDS, HANGS_AFTER
from support.servers.scripted_server import scripted_server

# The first test of a compiled language builds its examples.
pytestmark = pytest.mark.timeout(BUILD_SECONDS + HANGS_AFTER)
EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def fail(request: GenerateRequest, context: grpc.ServicerContext) -> Iterator[GenerateResponse]:
    """Ends the call with the reason that the prompt names, as the server does."""
    row = ERRORS[request.text]
    violations = (Violation("stop.max_tokens", "0, expected more"), Violation("text", "not this"))
    failure = Failure(
        request.text, f"what happened: {request.text} 100 %", "r-1", dict.fromkeys(row.metadata, "7"), violations
    )
    # Without pushback: another test checks that it makes clients wait.
    trailing = tuple(pair for pair in trailing_metadata(failure) if pair[0] == "grpc-status-details-bin")
    context.set_trailing_metadata(trailing)
    context.abort(status_code(failure), message_of(failure))
    yield GenerateResponse()


def told(reason: str) -> tuple[str, list[str]]:
    """Returns the line that a client prints for a failure, and the lines for its fields."""
    row = ERRORS[reason]
    named = f" {reason}" if row.has_reason else ""
    advice = f"; {ADVICE[reason]}" if reason in ADVICE else ""
    fields = ["  stop.max_tokens: 0, expected more", "  text: not this"]
    has_fields = Detail.BAD_REQUEST in row.details
    return f"{row.code}{named}: what happened: {reason} 100 %{advice}", fields if has_fields else []


def forms() -> list[str]:
    """Returns one reason for each status code and set of details, for languages whose programs start slowly."""
    return list({(row.code, row.has_reason, tuple(row.details)): reason for reason, row in ERRORS.items()}.values())


@pytest.mark.long
@pytest.mark.parametrize("language", ["cpp", "go", "java", "ruby", "curl"])
def test_rpc_29_cnt_4_every_reason_is_read(language, run):
    with scripted_server(Generate=fail) as address:
        for reason in forms() if language == "java" else ERRORS:
            result = run(language, "generate", address, reason)
            head, *fields = result.stderr.strip().splitlines()
            line, told_fields = told(reason)
            assert (result.returncode, head) == (1, line)
            assert fields == ([] if language == "curl" else told_fields)


# All in one process, because Node takes long to start.
ASK_FOR_EACH = """
import { connect, explain, within } from "%s";
const [target, ...reasons] = process.argv.slice(1);
const client = connect(target);
for (const text of reasons) {
  await new Promise((done) => {
    const stream = client.Generate({ text }, within(30));
    stream.on("data", () => {}).on("error", (error) => done(console.log(explain(error))));
  });
}
client.close();
"""


def test_rpc_29_every_reason_is_read_by_node(node):
    script = ASK_FOR_EACH % (EXAMPLES / "node" / "imp.mjs").as_uri()
    with scripted_server(Generate=fail) as address:
        command = [node, "--input-type=module", "-e", script, address, *ERRORS]
        result = subprocess.run(command, capture_output=True, text=True, timeout=HANGS_AFTER, check=False)
    assert result.stdout.splitlines() == [line for reason in ERRORS for line in (told(reason)[0], *told(reason)[1])]
