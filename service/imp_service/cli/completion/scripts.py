"""The completion scripts of bash, zsh and fish: each offers what may be typed next."""

from collections.abc import Callable, Iterable, Sequence

from imp_service.cli.completion.tree import Option, Place

_BASH = """\
# Completion of imp for bash; made by `imp completion bash`.
_imp() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" place=imp words="" files="" i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    case "$place ${{COMP_WORDS[i]}}" in
      {places}) place="$place ${{COMP_WORDS[i]}}" ;;
    esac
  done
  case "$place $prev" in
    {file_options}) compopt -o filenames; mapfile -t COMPREPLY < <(compgen -f -- "$cur"); return ;;
{choice_options}\
    {text_options}) return ;;
  esac
  case "$place" in
{offers}\
  esac
  if [[ $cur == -* ]]; then words="$options"; files=""; fi
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$cur")
  if [[ -n $files ]]; then
    compopt -o filenames
    local found; mapfile -t found < <(compgen -f -- "$cur"); COMPREPLY+=("${{found[@]}}")
  fi
}}
complete -F _imp imp
"""

_ZSH = """\
#compdef imp
# Completion of imp for zsh; made by `imp completion zsh`.
_imp() {{
  local place=imp files="" i
  local -a commands options
  for ((i = 2; i < CURRENT; i++)); do
    case "$place ${{words[i]}}" in
      ({places}) place="$place ${{words[i]}}" ;;
    esac
  done
  case "$place ${{words[CURRENT-1]}}" in
    ({file_options}) _files; return ;;
{choice_options}\
    ({text_options}) return ;;
  esac
  case "$place" in
{offers}\
  esac
  if [[ $PREFIX == -* ]]; then _describe -o option options; return; fi
  if (( $#commands )); then _describe command commands; fi
  if [[ -n $files ]]; then _files; fi
}}
if [[ $funcstack[1] == _imp ]]; then _imp "$@"; else compdef _imp imp; fi
"""

_FISH = """\
# Completion of imp for fish; made by `imp completion fish`.
function __imp_at
  set -l place imp
  for word in (commandline -opc)[2..]
    switch "$place $word"
      case {places}
        set place "$place $word"
    end
  end
  test "$place" = "$argv[1]"
end
complete -c imp -f
{offers}"""


def bash(places: Sequence[Place]) -> str:
    offers = "".join(
        f'    "{place.words}") words="{" ".join(_words_of(place))}"; files="{_flag(place.takes_files)}"; '
        f'options="{" ".join(name for option in place.options for name in option.names)}" ;;\n'
        for place in places
    )
    choices = "".join(
        f'    {key}) mapfile -t COMPREPLY < <(compgen -W "{" ".join(words)}" -- "$cur"); return ;;\n'
        for key, words in _choices(places)
    )
    return _BASH.format(offers=offers, choice_options=choices, **_patterns(places))


def zsh(places: Sequence[Place]) -> str:
    offers = "".join(
        f'    ("{place.words}")\n'
        f"      commands=({' '.join(_described(name, text) for name, text in _commands_of(place))})\n"
        f"      options=({' '.join(_described(n, o.text) for o in place.options for n in o.names)})\n"
        f'      files="{_flag(place.takes_files)}" ;;\n'
        for place in places
    )
    choices = "".join(f"    ({key}) compadd -- {' '.join(words)}; return ;;\n" for key, words in _choices(places))
    return _ZSH.format(offers=offers, choice_options=choices, **_patterns(places))


def fish(places: Sequence[Place]) -> str:
    lines = []
    for place in places:
        head = f"complete -c imp -n '__imp_at \"{place.words}\"'"
        lines += [f"{head} -a {name} -d {_quoted(text)}" for name, text in _commands_of(place)]
        if place.takes_files:
            lines.append(f"{head} -F")
        for option in place.options:
            names = "".join(f" -l {n[2:]}" if n.startswith("--") else f" -s {n[1:]}" for n in option.names)
            value = "" if not option.takes_value else " -r -F" if option.takes_files else " -x"
            value += f" -a {_quoted(' '.join(option.choices))}" if option.choices else ""
            lines.append(f"{head}{names}{value} -d {_quoted(option.text)}")
    names = " ".join(_quoted(place.words) for place in places[1:])
    return _FISH.format(places=names, offers="".join(f"{line}\n" for line in lines))


SCRIPTS: dict[str, Callable[[Sequence[Place]], str]] = {"bash": bash, "zsh": zsh, "fish": fish}


def _commands_of(place: Place) -> list[tuple[str, str]]:
    return [*place.commands, *((choice, "") for choice in place.choices)]


def _words_of(place: Place) -> list[str]:
    return [name for name, _ in _commands_of(place)]


def _flag(is_set: bool) -> str:
    return "yes" if is_set else ""


def _patterns(places: Sequence[Place]) -> dict[str, str]:
    """Alternatives of a case: places below imp, and options by what they take."""
    return {
        "places": _either(place.words for place in places[1:]),
        "file_options": _either(_keys(places, lambda option: option.takes_files)),
        "text_options": _either(
            _keys(places, lambda option: option.takes_value and not option.takes_files and not option.choices)
        ),
    }


def _choices(places: Sequence[Place]) -> list[tuple[str, tuple[str, ...]]]:
    return [
        (_either(f"{place.words} {name}" for name in option.names), option.choices)
        for place in places
        for option in place.options
        if option.choices
    ]


def _keys(places: Sequence[Place], is_one: Callable[[Option], bool]) -> list[str]:
    return [f"{p.words} {name}" for p in places for option in p.options if is_one(option) for name in option.names]


def _either(texts: Iterable[str]) -> str:
    return "|".join(f'"{text}"' for text in texts)


def _described(name: str, text: str) -> str:
    return _quoted(f"{name}:{text}" if text else name)


def _quoted(text: str) -> str:
    """For zsh and fish: both take '…'; inside, \\ and ' are written so that both understand them."""
    return "'" + text.replace("\\", "\\\\").replace("'", "’") + "'"
