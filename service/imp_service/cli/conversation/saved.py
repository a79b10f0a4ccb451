"""A conversation in a file: its messages and its options, as JSON. Images are base64."""

import base64
import json
from pathlib import Path
from typing import Any

from imp_service.cli.atomic_file import write_atomically
from imp_service.cli.conversation.dialogue import Dialogue, Turn
from imp_service.cli.conversation.options import require_name
from imp_service.cli.failure import CommandError
from imp_service.cli.options.sampling import is_whole

MAX_BYTES = 64 * 1024**2


def save(dialogue: Dialogue, word: str) -> Path:
    """Writes the conversation. Replaces a saved conversation, and no other file."""
    path = Path(word).expanduser()
    if path.exists():
        try:
            load(word)
        except CommandError:
            raise CommandError("CANNOT_CREATE", f"{word}: exists and is not a saved conversation") from None
    system = [] if dialogue.system is None else [Turn("system", dialogue.system)]
    messages = [_message(turn) for turn in (*system, *dialogue.turns)]
    content = json.dumps({"messages": messages, "options": dialogue.options}, ensure_ascii=False, indent=1)
    if len(content) > MAX_BYTES:
        raise CommandError("CANNOT_CREATE", f"{word}: more than {MAX_BYTES // 1024**2} MiB; /drop removes messages")
    write_atomically(path, content + "\n", mode=0o600)
    return path


def load(word: str) -> Dialogue:
    """Reads a saved conversation. Raises OSError and CommandError."""
    path = Path(word).expanduser()
    if path.exists() and not path.is_file():
        raise _unfit(word, "not a regular file")
    if path.stat().st_size > MAX_BYTES:
        raise _unfit(word, f"more than {MAX_BYTES // 1024**2} MiB")
    try:
        content = json.loads(path.read_bytes())
    except (ValueError, RecursionError) as error:
        raise _unfit(word, str(error)) from None
    if not isinstance(content, dict) or not isinstance(content.get("messages"), list):
        raise _unfit(word, "no list of messages")
    turns = [_turn(word, message) for message in content["messages"]]
    system = turns.pop(0).content if turns and turns[0].role == "system" else None
    if [turn.role for turn in turns] != [("user", "assistant")[i % 2] for i in range(len(turns))]:
        raise _unfit(word, "the roles do not alternate between user and assistant")
    return Dialogue(system, _options(word, content.get("options", {})), turns)


def _message(turn: Turn) -> dict[str, object]:
    images = [base64.b64encode(image).decode() for image in turn.images]
    return {"role": turn.role, "content": turn.content, **({"images": images} if images else {})}


def _turn(word: str, message: Any) -> Turn:
    if not isinstance(message, dict) or not all(isinstance(message.get(key), str) for key in ("role", "content")):
        raise _unfit(word, "a message without role or content")
    return Turn(message["role"], message["content"], _images(word, message.get("images", [])))


def _images(word: str, images: Any) -> tuple[bytes, ...]:
    try:
        return tuple(base64.b64decode(image, validate=True) for image in images)
    except (TypeError, ValueError):
        raise _unfit(word, "images that are not base64") from None


def _options(word: str, options: Any) -> dict[str, float]:
    if not isinstance(options, dict):
        raise _unfit(word, "options are not an object")
    found: dict[str, float] = {}
    for name, value in options.items():
        whole = is_whole(require_name(name))
        if isinstance(value, bool) or not isinstance(value, int if whole else int | float):
            raise _unfit(word, f"{name} is not {'an integer' if whole else 'a number'}")
        found[name] = value
    return found


def _unfit(word: str, what: str) -> CommandError:
    return CommandError("FIELD_INVALID", f"{word}: {what}, expected a conversation that /save wrote")
