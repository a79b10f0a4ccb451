"""Runs a conversation on a terminal or through a pipe, or answers one message."""

import sys
from argparse import Namespace

from imp_service.cli.conversation.dialogue import Dialogue, Responder
from imp_service.cli.conversation.loop import Conversation
from imp_service.cli.terminal import HINT, is_interactive, piped_messages


def say_once(responder: Responder, dialogue: Dialogue, message: str, arguments: Namespace) -> None:
    """Answers one message."""
    Conversation(responder, dialogue, drops_oldest=arguments.drop_oldest, is_interactive=False).say(message)


def hold_conversation(responder: Responder, dialogue: Dialogue, arguments: Namespace) -> None:
    drops_oldest = arguments.drop_oldest
    if not is_interactive():
        Conversation(responder, dialogue, drops_oldest=drops_oldest, is_interactive=False).hold(piped_messages())
        return
    from imp_service.cli.line_editor import LineEditor

    editor = LineEditor(keeps_history=not arguments.no_history)
    print(HINT, file=sys.stderr, flush=True)
    conversation = Conversation(responder, dialogue, drops_oldest=drops_oldest, is_interactive=True, edit=editor.edit)
    conversation.hold(editor.messages())
