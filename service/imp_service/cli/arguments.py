"""The argument parser of every command, and argparse types for numbers and times."""

import re
from argparse import Action, ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    pass


# The messages of argparse about an unknown option, a word too many, and a word that is not one of the choices.
_UNKNOWN = re.compile(r"unrecognized arguments: (-\S+)")
_SURPLUS = re.compile(r"unrecognized arguments: [^-]")
_NO_CHOICE = re.compile(r"invalid choice: '(.*?)' \(choose from (.*)\)")
_QUOTED = re.compile(r"[\w.-]+")


# Commands of Ollama and of other servers, and what imp has in their place.
_FOREIGN_COMMANDS = {
    "ps": "imp top watches a running server",
    "stop": "Ctrl-C or SIGTERM ends imp serve, and imp admin drain makes it refuse new requests",
    "start": "imp serve starts a server",
    "list": "imp ls lists the downloaded models",
    "show": "imp inspect shows what a model holds",
    "download": "imp pull downloads a model",
    "generate": "imp run --raw continues a text",
    "version": "imp --version shows it",
}
_OF_SERVERS = ("write --http HOST:PORT, or --listen HOST:PORT for gRPC", "--http")
_OF_CLIENTS = ("write --target HOST:PORT, the address of gRPC", "--target")
_NEEDLESS = ("leave it out: imp needs no such option", "--set")
# Options of other tools that are no settings: what imp has in their place, and the option that a command then has.
_FOREIGN_OPTIONS = {
    **dict.fromkeys(("--port", "--host"), (_OF_SERVERS, _OF_CLIENTS)),
    **dict.fromkeys(("--url", "--base-url", "--server"), (_OF_CLIENTS,)),
    **dict.fromkeys(("--grpc", "--grpc-port"), (("write --listen HOST:PORT", "--listen"),)),
    **dict.fromkeys(("-hf", "-hfr", "--hf-repo"), (("write -m hf:OWNER/NAME:TYPE", "--model"),)),
    **dict.fromkeys(("-p", "--prompt"), (("write the prompt as the last word", "--raw"),)),
    **dict.fromkeys(("-f", "--file"), (("write - as the prompt, and give the file to stdin", "--raw"),)),
    **dict.fromkeys(("-i", "-cnv", "--interactive", "--conversation"), (("imp chat holds a conversation", "--raw"),)),
    **dict.fromkeys(("-mm", "--mmproj"), (("write --projector FILE", "--projector"),)),
    "--format": (("write --json-schema FILE", "--json-schema"),),
    **dict.fromkeys(("-v", "--verbose", "--log-level"), (("write --set log.level=debug", "--listen"),)),
    **dict.fromkeys(
        ("-tp", "--tensor-parallel-size", "--data-parallel-size", "--pipeline-parallel-size"),
        (("a server runs its model on one device; SMG and others stand before several", "--listen"),),
    ),
    **dict.fromkeys(
        ("--embedding", "--embeddings", "--reranking", "--rerank", "--pooling", "--task"),
        (("the model's files say what it makes; see model.overrides.pooling for those that do not", "--listen"),),
    ),
    **dict.fromkeys(
        ("-fa", "--flash-attn", "--no-mmap", "--mlock", "--jinja", "-cb", "--cont-batching", "--trust-remote-code"),
        (_NEEDLESS,),
    ),
    **dict.fromkeys(("--enable-chunked-prefill", "--keepalive", "--enable-auto-tool-choice"), (_NEEDLESS,)),
}


class UsageError(Exception):
    """An invalid command line. `prog` is the command whose help is named below the error line."""

    def __init__(self, prog: str, message: str) -> None:
        self.reason = "USAGE"
        self.prog = prog
        self.message = message
        super().__init__(message)


class _HelpFormatter(RawDescriptionHelpFormatter):
    """Keeps the lines of examples, and an option and its text on one line where they fit."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=26)

    def add_argument(self, action: Action) -> None:
        super().add_argument(action)
        for below in self._iter_indented_subactions(action):  # argparse forgets that they are indented
            width = len(self._format_action_invocation(below)) + self._current_indent
            self._action_max_length = max(self._action_max_length, width)


class Parser(ArgumentParser):
    """Options cannot be abbreviated, so a new option never breaks a script."""

    def __init__(self, *, examples: Sequence[str] = (), **options: Any) -> None:
        shown = "\n".join(["examples:", *(f"  {example}" for example in examples)]) if examples else None
        super().__init__(allow_abbrev=False, epilog=shown, formatter_class=_HelpFormatter, **options)
        self.examples = tuple(examples)

    def error(self, message: str) -> NoReturn:
        found = _NO_CHOICE.search(message)
        if found is not None and message.startswith("argument COMMAND: "):
            advice = _FOREIGN_COMMANDS.get(found[1])
            raise UsageError(
                self.prog, f"{found[1]}: unknown command{self._nearest(message) if advice is None else f'; {advice}'}"
            )
        raise UsageError(self.prog, message + (self._taken() if _SURPLUS.match(message) else self._nearest(message)))

    def _taken(self) -> str:
        """The words that the command takes."""
        words = [str(action.metavar or action.dest) for action in self._get_positional_actions()]
        is_model_option = "--model" in self._option_string_actions and "MODEL" not in words
        taken = f"; {self.prog} takes {' '.join(words) or 'options only'}"
        return f"{taken}, and the model as --model MODEL" if is_model_option else taken

    def _nearest(self, message: str) -> str:
        """The option or the choice that a wrong word resembles."""
        from difflib import get_close_matches

        wrong, known = None, list(_options(self))
        if found := _UNKNOWN.match(message):
            wrong = found[1]
        elif found := _NO_CHOICE.search(message):
            wrong, known = found[1], _QUOTED.findall(found[2])
        begins = [name for name in known if wrong and len(wrong) > 2 and name.startswith(wrong)]
        close = begins[:1] or (get_close_matches(wrong, known, n=1, cutoff=0.7) if wrong else ())
        return "".join(f"; did you mean {name}?" for name in close)


def _options(parser: ArgumentParser) -> Iterator[str]:
    """The options of the parser and of its subcommands, whose unknown options it reports."""
    yield from parser._option_string_actions
    for action in parser._actions:
        for below in action.choices.values() if isinstance(action.choices, dict) else ():
            yield from _options(below)


def parser_of_method(parser: ArgumentParser, words: Sequence[str]) -> ArgumentParser:
    """The parser of the method that these words begin with; the parser itself if it has no such method."""
    for action in parser._actions:
        found = action.choices.get(words[0]) if words and isinstance(action.choices, dict) else None
        if isinstance(found, ArgumentParser):
            return found
    return parser


def refuse_foreign_options(parser: ArgumentParser, words: Sequence[str]) -> None:
    """Raises UsageError for an option of another tool, with what imp has in its place.

    It looks before the parser does, which reads `-ngl` as `-n gl`.
    """
    known = set(_options(parser))
    for word in words[: words.index("--")] if "--" in words else words:
        name = word.partition("=")[0]
        if name in known or not name.startswith("-"):
            continue
        for advice, option in _FOREIGN_OPTIONS.get(name) or (_of_keyword(name) or _of_setting(name),):
            if option in known:
                raise UsageError(parser.prog, f"unrecognized arguments: {name}; {advice}")


def _of_keyword(name: str) -> tuple[str, str] | None:
    """The advice on an option that is a keyword of the library, and that option; None for other options."""
    from imp_service.api.other_names import SAME  # imported here: few command lines need it

    keyword = SAME.get(name.lstrip("-").replace("-", "_")) if name.startswith("--") else None
    return None if keyword is None else (f"write {(option := '--' + keyword.replace('_', '-'))}", option)


def _of_setting(name: str) -> tuple[str, str]:
    """The advice on an option that is a setting, and the option that a command then has; empty for other options."""
    from imp_service.config.foreign_names import CONTEXT, FOREIGN_NAMES  # imported here: few command lines need it

    found = FOREIGN_NAMES.get(name.lstrip("-").replace("-", "_"))
    if found is None:
        return "", ""
    if found.key == CONTEXT:
        return "write --context N", "--context"
    remark = f"; {found.remark}" if found.remark else ""
    return f"write --set {found.key}={found.value}{remark}", "--set"


class Once(Action):
    """Stores a value; a repeated option is an error."""

    def __call__(
        self,
        parser: ArgumentParser,
        namespace: Namespace,
        values: str | Sequence[Any] | None,
        option_string: str | None = None,
    ) -> None:
        if getattr(namespace, self.dest) is not None:
            parser.error(f"{option_string} is given twice")
        setattr(namespace, self.dest, values)


def integers(text: str) -> tuple[int, ...]:
    """An argparse type: comma-separated integers such as "512,2048", without repetitions."""
    parts = text.split(",")
    if not all(part.isascii() and part.isdigit() and len(part) < 8 for part in parts):
        raise ArgumentTypeError(f"{text}: expected whole numbers with commas between")
    return tuple(dict.fromkeys(int(part) for part in parts))


def positive_integers(text: str) -> tuple[int, ...]:
    """An argparse type: as integers(), without zero."""
    found = integers(text)
    if 0 in found:
        raise ArgumentTypeError(f"{text}: expected numbers of at least 1")
    return found


def positive_integer(text: str) -> int:
    """An argparse type."""
    return _one(text, positive_integers(text))


def whole_number(text: str) -> int:
    """An argparse type, with zero."""
    return _one(text, integers(text))


def _one(text: str, found: tuple[int, ...]) -> int:
    if len(found) != 1:
        raise ArgumentTypeError(f"{text}: expected one number")
    return found[0]


def image_sizes(text: str) -> tuple[tuple[int, int], ...]:
    """An argparse type: widths and heights such as "1024x768,640x480", without repetitions."""
    found = [re.fullmatch(r"([1-9]\d{0,6})x([1-9]\d{0,6})", part, re.ASCII) for part in text.split(",")]
    if not all(found):
        raise ArgumentTypeError(f"{text}: expected WIDTHxHEIGHT in pixels, with commas between")
    return tuple(dict.fromkeys((int(size[1]), int(size[2])) for size in found if size is not None))


def duration(text: str) -> float:
    """An argparse type: the seconds of a text such as "30s"."""
    from imp_service.config.kinds import UnfitError
    from imp_service.config.quantities import Duration

    try:
        return Duration("1ms", "24h").read(text).total_seconds()
    except UnfitError as error:
        raise ArgumentTypeError(f"{text}: expected {error}") from None
