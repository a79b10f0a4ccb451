"""The examples that stream a text: they print the model's output and explain failures and deadlines."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.run.patience import BUILD_SECONDS, HANGS_AFTER
from support.servers.breaking_servers import BreakingServers
from support.servers.scripted_server import resumable_story, scripted_server

GOLDEN = json.loads((Path(__file__).parents[1] / "data" / "demo_golden.json").read_text())
STORY, WEATHER = GOLDEN["models"]["target"]["prompts"][:2]
LANGUAGES = ("python", "node", "cpp", "go", "java", "ruby", "curl")
# Debian's packages of gRPC for Java lack Unix sockets.
CALLS = [
    (language, target) for language in LANGUAGES for target in ("tcp", "unix") if (language, target) != ("java", "unix")
]
# The first test of a compiled language builds its examples.
pytestmark = pytest.mark.timeout(BUILD_SECONDS + HANGS_AFTER)


@pytest.mark.long
@pytest.mark.parametrize(("language", "target"), CALLS, indirect=["target"])
def test_rpc_29_cnt_4_a_text_is_printed_as_the_model_says_it(language, target, run):
    result = run(language, "generate", target, STORY["text"], str(len(STORY["output_ids"])))
    assert (result.returncode, result.stdout) == (0, STORY["output_text"] + "\n"), result.stderr
    if language != "curl":  # which prints only the text
        started, finished = result.stderr.splitlines()
        assert started.startswith("[imp demo, seed ")
        assert finished == f"[FINISH_REASON_MAX_TOKENS, {len(STORY['output_ids'])} tokens]"


@pytest.mark.long
@pytest.mark.parametrize(("language", "target"), CALLS, indirect=["target"])
def test_rpc_29_cnt_4_a_failure_is_reported_with_code_and_reason(language, target, run):
    result = run(language, "generate", target, "Once", "100000")
    assert (result.returncode, result.stdout.strip()) == (1, "")
    assert result.stderr.strip().startswith("OUT_OF_RANGE CONTEXT_TOO_LONG: ")
    assert "100000" in result.stderr and "16384" in result.stderr


@pytest.mark.long
@pytest.mark.parametrize(("language", "target"), CALLS, indirect=["target"])
def test_rpc_29_cnt_4_a_failure_names_the_field(language, target, run):
    result = run(language, "generate", target, "")
    assert (result.returncode, result.stdout.strip()) == (1, "")
    head, *fields = result.stderr.strip().splitlines()
    assert head.startswith("INVALID_ARGUMENT FIELD_INVALID: ")
    if language != "curl":
        assert len(fields) == 1 and fields[0].startswith("  text: ")


@pytest.mark.long
@pytest.mark.parametrize(("language", "target"), CALLS, indirect=["target"])
def test_rpc_29_cnt_4_a_deadline_ends_a_text_in_the_middle(language, target, run):
    result = run(language, "generate", target, STORY["text"], "16000", "0.5")
    assert result.returncode == 1, result.stderr
    assert "DEADLINE_EXCEEDED: " in result.stderr
    text = result.stdout.removesuffix("\n")
    # The output before the deadline is the beginning of the text.
    assert text.startswith(STORY["output_text"][: len(text)])


@pytest.mark.long
@pytest.mark.parametrize("language", ["node", "go"])
def test_rsm_4_a_text_goes_on_where_its_server_went_away(language, run):
    servers = BreakingServers(2, 0, 2, messages=resumable_story("Once", " upon", " a", " time"))
    with scripted_server(Generate=servers) as address:
        result = run(language, "generate", address)
    assert (result.returncode, result.stdout) == (0, "Once upon a time\n"), result.stderr
    assert len(result.stderr.splitlines()) == 2
    told = [[list(each.token_ids) for each in asked.resume.sequences] for asked in servers.asked]
    assert told == [[], [[100]], [[100]], [[100, 101]]]


@pytest.mark.long
@pytest.mark.parametrize("language", ["node", "go"])
def test_k02_a_server_that_dies_at_once_ends_the_text_with_its_error(language, run):
    servers = BreakingServers(2, *[0] * 20, messages=resumable_story())
    with scripted_server(Generate=servers) as address:
        result = run(language, "generate", address)
    assert result.returncode == 1
    assert result.stderr.splitlines()[-1].startswith("UNAVAILABLE DRAINING: ")
    assert len(servers.asked) == 7


def test_two_texts_at_once_with_asyncio(target, run):
    result = run("python", "generate_async", target, "32")
    story, weather = result.stdout.rstrip("\n").split("\n\n")
    assert (result.returncode, result.stderr) == (0, "")
    assert story.startswith("Once upon a time, in a little house near the farm, there lived a boy called Paul.")
    assert weather.startswith("The weather today is snowy. Snow is falling, and the beach is covered in white.")


def test_a_failure_with_asyncio(target, run):
    result = run("python", "generate_async", target, "100000")
    assert (result.returncode, result.stdout) == (1, "")
    for line, prompt in zip(result.stderr.splitlines(), (STORY, WEATHER), strict=True):
        assert line.startswith(f"{prompt['text']!r}: OUT_OF_RANGE CONTEXT_TOO_LONG: ")
