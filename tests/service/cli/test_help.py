"""Help: the examples of every command are valid command lines, and words that people try do what they mean."""

from __future__ import annotations

import json
import re
import shlex
from argparse import ArgumentParser, _SubParsersAction
from collections.abc import Iterator
from pathlib import Path

import pytest

from imp_service.cli.arguments import Parser
from imp_service.cli.command_line import build_parser, parse
from imp_service.cli.commands import COMMANDS
from imp_service.config.render import render
from imp_service.models import demo_model_path
from support.machine.command_line import error_lines


def _every_parser(parser: ArgumentParser) -> Iterator[ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for below in action.choices.values():
                yield from _every_parser(below)


WHOLE, _ = build_parser({command.name for command in COMMANDS})
PARSERS = {parser.prog: parser for parser in _every_parser(WHOLE) if parser.prog != "imp help"}
EXAMPLES = [(prog, example) for prog, parser in PARSERS.items() for example in getattr(parser, "examples", ())]


def test_cmd_6_control_the_methods_are_among_them() -> None:
    assert {"imp", "imp run", "imp call", "imp call tokenize", "imp config check"} <= PARSERS.keys()


@pytest.mark.few(16)
@pytest.mark.parametrize("prog", PARSERS)
def test_cmd_6_every_command_shows_two_examples(prog: str, call, capfd) -> None:
    parser = PARSERS[prog]
    assert isinstance(parser, Parser) and len(parser.examples) >= 2
    with pytest.raises(SystemExit) as ended:
        call(*prog.split()[1:], "--help")
    assert ended.value.code == 0
    shown = capfd.readouterr().out
    assert shown.endswith("examples:\n" + "".join(f"  {example}\n" for example in parser.examples))


def test_gemm_16_help_offers_no_emulated_gpu_and_no_unvalidated_kernels(call) -> None:
    told = [parser.format_help() for prog, parser in PARSERS.items() if prog != "imp kernels"]
    told += [render(), call("run", "x", "--set", "device.kind=gpu")[2]]
    assert len(told) > 10 and '"auto" or "cpu" or "cuda"' in told[-1]
    assert [re.findall(r"emulat|validated|maturity", text) for text in told] == [[]] * len(told)


@pytest.mark.few(7)
@pytest.mark.parametrize("prog", [prog for prog in PARSERS if prog != "imp"])
def test_cmd_6_help_is_the_same_as_the_option(prog: str, call, capfd) -> None:
    shown = []
    for words in ((*prog.split()[1:], "--help"), ("help", *prog.split()[1:])):
        with pytest.raises(SystemExit):
            call(*words)
        shown.append(capfd.readouterr().out)
    assert shown[0] == shown[1] and shown[0].startswith(f"usage: {prog}")


@pytest.mark.few(16)
@pytest.mark.parametrize(("prog", "example"), EXAMPLES)
def test_cmd_6_each_example_is_a_command_line(prog: str, example: str, capfd) -> None:
    words = shlex.split(example.removeprefix('eval "$(').removesuffix(')"').partition(" > ")[0])
    assert words[0] == "imp"
    if words[1] == "help":
        with pytest.raises(SystemExit) as ended:
            parse(words[1:])
        assert ended.value.code == 0
        return
    command, parsed = parse(words[1:])
    assert prog.split()[1:2] in ([], [command.name])
    method = prog.split()[2:]
    assert method in ([], *([getattr(parsed, name, None)] for name in ("method", "action", "act_name")))


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ([], "no command, expected COMMAND"),
        (["help", "cnfig"], "cnfig: unknown command; did you mean config?"),
        (["call", "model.gguf"], "PROMPT: model.gguf is a model file, and this asks a server; use imp run model.gguf"),
        (["run", "--raw", "--system", "Be brief.", "Once"], "--system: given together with --raw"),
        (["ps"], "ps: unknown command; imp top watches a running server"),
        (["serve", "model.gguf", "-m", "model.gguf"], "-m is given twice"),
        (["serve", "-m", "model.gguf", "model.gguf"], "MODEL: given together with --model, expected one of them"),
        (["bench", "--synthetic", "0.6b", "model.gguf"], "not allowed with argument"),
        (["run", "x", "--regex", "a", "--json-schema", "s.json"], "not allowed with argument"),
    ],
)
def test_cmd_6_an_unusable_command_line_names_the_right_one(words: list[str], line: str, call) -> None:
    Path("model.gguf").write_bytes(b"GGUF")
    status, out, err = call(*words)
    assert (status, out) == (64, "")
    assert line in error_lines(err)[-1]


def test_cmd_6_several_words_are_one_prompt(call) -> None:
    greedy = ("--temperature", "0", "-n", "5", "--set", "device.threads=1")
    assert (
        call("run", "-m", str(demo_model_path()), "Once", "upon", "a", "time", *greedy)[:2]
        == call("run", "-m", str(demo_model_path()), "Once upon a time", *greedy)[:2]
    )


@pytest.mark.long
@pytest.mark.parametrize("words", [["inspect"], ["k8s"], ["tune", "--reps", "1"]])
def test_cmd_6_a_model_needs_no_option(words: list[str], call) -> None:
    Path("model.gguf").write_bytes(demo_model_path().read_bytes())
    status, out, _ = call(*words, "model.gguf")
    assert status == 0
    assert words[0] == "tune" or out == call(*words, "-m", "model.gguf")[1]


def test_cmd_7_a_wrong_schema_is_found_before_the_model_is_loaded(call) -> None:
    Path("schema.json").write_text("{")
    for words, reason in (
        (("--json-schema", "absent.json"), "IO_FAILED: absent.json"),
        (("--json-schema", "schema.json"), "FIELD_INVALID: schema.json: "),
        (("--regex", "a", "--any-whitespace"), "USAGE: --any-whitespace"),
        (("--json-schema", "-"), "MODEL_MISSING: "),  # read later, since a prompt may come from there
    ):
        _, out, err = call("run", "absent.gguf", "x", *words)
        assert out == "" and reason in error_lines(err)[-1], err


@pytest.mark.long
def test_cmd_7_an_answer_of_a_schema_or_a_regular_expression(call) -> None:
    fixed = ("--seed", "1", "--set", "device.threads=1")
    Path("schema.json").write_text('{"enum": [{"n": 7}, {"n": 8}]}')
    status, out, _ = call("run", "A number: ", "--json-schema", "schema.json", *fixed)
    assert (status, json.loads(out)["n"] in (7, 8)) == (0, True)
    assert call("run", "A number: ", "--json-schema", "schema.json", "--any-whitespace", *fixed)[0] == 0
    status, out, _ = call("run", "3 plus 4 is ", "--regex", "[0-9]{3}x", *fixed)
    assert (status, out[3:]) == (0, "x\n") and out[:3].isdigit()
    for words, code, reason in (
        (("--json-schema", "absent.json"), 74, "IO_FAILED: absent.json"),
        (("--json-schema", "model.gguf"), 64, "FIELD_INVALID: model.gguf: "),
        (("--regex", "("), 64, "FIELD_INVALID: constraint.regex"),
        (("--regex", "a", "--any-whitespace"), 64, "USAGE: --any-whitespace"),
    ):
        Path("model.gguf").write_bytes(b"\xff")
        status, out, err = call("run", "x", *words, *fixed)
        assert (status, out) == (code, "")
        assert reason in error_lines(err)[-1], err
