"""Options of every command that generates text: one for each sampler field, and constraints on the text."""

from argparse import ArgumentParser, Namespace
from pathlib import Path
from typing import NamedTuple

from imp_service.cli.answer import ANSWER_TOKENS, CONTINUATION_TOKENS
from imp_service.cli.arguments import Once
from imp_service.cli.failure import CommandError


def add_sampling_options(parser: ArgumentParser, default: str) -> None:
    """`default` names the origin of a field that is not given."""
    from imp_service.tables import SAMPLER_FIELDS

    for name, field in SAMPLER_FIELDS.items():
        parser.add_argument(
            option_of(name),
            metavar="N" if field.is_whole else "X",
            type=int if field.is_whole else float,
            action=Once,
            help=f"{field.meaning} (default: {default})",
        )
    parser.add_argument(
        "--seed", metavar="S", type=int, action=Once, help="the same seed gives the same text (default: a new one)"
    )


def add_length_option(parser: ArgumentParser, exception: str) -> None:
    """-n; `exception` says where another default holds."""
    parser.add_argument(
        "-n",
        "--max-tokens",
        metavar="N",
        type=int,
        action=Once,
        help=f"most tokens to write (default: {ANSWER_TOKENS} for an answer, {CONTINUATION_TOKENS} for a text that is "
        f"continued; {exception})",
    )
    parser.add_argument(
        "--max-reasoning-tokens",
        metavar="N",
        type=int,
        action=Once,
        help="most tokens of reasoning, which is then closed; 0: none (default: as many as the model writes)",
    )


def given_sampling(arguments: Namespace) -> dict[str, float]:
    """The given fields, by their names in imp.v1."""
    from imp_service.tables import SAMPLER_FIELDS

    found = {name: getattr(arguments, name) for name in (*SAMPLER_FIELDS, "seed")}
    return {name: value for name, value in found.items() if value is not None}


def number_names() -> tuple[str, ...]:
    """The options that are numbers, by their names in imp.v1."""
    from imp_service.tables import SAMPLER_FIELDS

    return (*SAMPLER_FIELDS, "seed", "max_tokens")


def is_whole(name: str) -> bool:
    """The option is a whole number."""
    from imp_service.tables import SAMPLER_FIELDS

    return name not in SAMPLER_FIELDS or SAMPLER_FIELDS[name].is_whole


def option_of(name: str) -> str:
    return f"--{name.replace('_', '-')}"


class ConstraintOption(NamedTuple):
    kind: str  # the field of imp.v1.Constraint
    source: str
    unbounded_whitespace: bool = False


def add_constraint_options(parser: ArgumentParser) -> None:
    group = parser.add_mutually_exclusive_group()
    group.add_argument(
        "--json-schema",
        metavar="FILE",
        action=Once,
        help="write JSON that the JSON Schema in FILE accepts; - reads stdin",
    )
    parser.add_argument(
        "--any-whitespace",
        action="store_true",
        help="with --json-schema: allow any amount of white space between two tokens of JSON",
    )
    group.add_argument("--regex", metavar="TEXT", action=Once, help="write a text that this regular expression matches")


def read_constraint(arguments: Namespace) -> ConstraintOption | None:
    """Reads the constraint and checks that a schema is JSON. The model checks the rest when it compiles it."""
    from imp_service.cli.terminal import decode, read_prompt

    if arguments.any_whitespace and arguments.json_schema is None:
        raise CommandError("USAGE", "--any-whitespace: expected together with --json-schema")
    if arguments.regex is not None:
        return ConstraintOption("regex", decode(arguments.regex.encode("utf-8", "surrogateescape"), "--regex"))
    if arguments.json_schema is None:
        return None
    if arguments.json_schema == "-":
        source = read_prompt("-")
    else:
        source = decode(Path(arguments.json_schema).read_bytes(), arguments.json_schema)
    _require_json(source, arguments.json_schema)
    return ConstraintOption("json_schema", source, arguments.any_whitespace)


def _require_json(source: str, where: str) -> None:
    import json

    try:
        json.loads(source)
    except (ValueError, RecursionError) as error:
        raise CommandError("FIELD_INVALID", f"{where}: {error}, expected a JSON Schema") from None
