"""Tells a model in words about its tools, where its chat template has no place for them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from imp_service.api.chat_prompt import ChatMessage, ChatPrompt, joined
from imp_service.api.image import Image
from imp_service.text.channels.dialect import CallForm, Dialect
from imp_service.text.channels.pattern import BLANK

SYSTEM, USER, ASSISTANT, TOOL = "system", "user", "assistant", "tool"
RESULT_BEGIN, RESULT_END = "<tool_response>", "</tool_response>"
WORDS = """\
You may call functions. Here is each of them as JSON, with the JSON Schema of its arguments:

{functions}

To call a function, write this and nothing else, with its name and its arguments:

{example}

You then get what it returned between {result_begin} and {result_end}. If no function helps, answer as usual."""


@dataclass(frozen=True, slots=True)
class WrittenTools:
    """Functions, calls and results as text of ordinary messages."""

    # The markup of the calls.
    dialect: Dialect
    # The template shows system messages. Otherwise the words come before the first message of the user.
    has_system: bool

    def rewritten(self, chat: ChatPrompt) -> ChatPrompt:
        """The same conversation for a template that knows no tools. It must be valid."""
        if not chat.tools_json and not any(map(_is_about_tools, chat.messages)):
            return chat
        messages = list(self._as_text(chat.messages))
        tools = json.loads(chat.tools_json) if chat.tools_json else []
        if tools:
            self._tell(messages, self._words(tools))
        return replace(chat, messages=tuple(messages), tools_json="")

    def _as_text(self, messages: Sequence[ChatMessage]) -> Iterator[ChatMessage]:
        """The messages, with calls and results as text. Results become a message of the user, who may go on in it."""
        results: list[str | Image] = []
        for message in messages:
            if message.role == TOOL:
                begin = f"\n{RESULT_BEGIN}\n" if results else f"{RESULT_BEGIN}\n"
                results += [begin, *message.parts(), f"\n{RESULT_END}"]
                continue
            said, results = results, []
            if said and message.role == USER:
                yield replace(message, content=joined((*said, "\n\n", *message.parts())))
                continue
            if said:
                yield ChatMessage(USER, joined(said))
            yield self._with_calls(message)
        if results:
            yield ChatMessage(USER, joined(results))

    def _with_calls(self, message: ChatMessage) -> ChatMessage:
        if not message.tool_calls_json:
            return message
        calls = [self._call(each) for each in json.loads(message.tool_calls_json)]
        written = "\n".join([*([""] if message.content else []), *calls])
        return replace(message, content=message.with_text(after=written if calls else ""), tool_calls_json="")

    def _call(self, call: Mapping[str, object]) -> str:
        function = call.get("function", call)
        if not isinstance(function, dict):
            return json.dumps(call, ensure_ascii=False)
        arguments = function.get("arguments") or "{}"
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        return written_call(self.dialect.forms[0], str(function.get("name", "")), arguments)

    def _words(self, tools: Sequence[object]) -> str:
        functions = [each.get("function", each) if isinstance(each, dict) else each for each in tools]
        return WORDS.format(
            functions="\n".join(json.dumps(each, ensure_ascii=False) for each in functions),
            example=written_call(self.dialect.forms[0], "NAME", '{"ARGUMENT": "VALUE"}'),
            result_begin=RESULT_BEGIN,
            result_end=RESULT_END,
        )

    def _tell(self, messages: list[ChatMessage], words: str) -> None:
        """Adds the words to the messages."""
        if not self.has_system:
            i = next((i for i, each in enumerate(messages) if each.role == USER), None)
            if i is None:
                messages.insert(0, ChatMessage(USER, words))
            else:
                messages[i] = replace(messages[i], content=messages[i].with_text(before=f"{words}\n\n"))
        elif messages[0].role == SYSTEM:
            after = f"\n\n{words}" if messages[0].content else words
            messages[0] = replace(messages[0], content=messages[0].with_text(after=after))
        else:
            messages.insert(0, ChatMessage(SYSTEM, words))


def writes_json(form: CallForm) -> bool:
    """Whether a call in this form is JSON between markers, so that imp can write it as an example."""
    head, tail = form.head, form.tails[0] if form.tails else ""
    return not form.parameters and not form.notation and not any(gap in head + tail for gap in ("$id", "$index"))


def written_call(form: CallForm, name: str, arguments: str) -> str:
    """A call as text."""
    head = form.opening + form.head
    before = form.begin.text + ("\n" if head.startswith(BLANK) else "") if form.begin else ""
    after = ("\n" if form.end.startswith(BLANK) else "") + form.end.strip()
    return before + _json(head).replace("$name", name) + arguments + _json(form.tails[0] if form.tails else "") + after


def _json(pattern: str) -> str:
    """A pattern as a person writes JSON: its blanks stand for white space that may be there."""
    text = pattern.replace(" : ", ": ").replace(" , ", ", ").lstrip()
    return text.replace("{ ", "{").replace("[ ", "[").replace(" }", "}").replace(" ]", "]")


def _is_about_tools(message: ChatMessage) -> bool:
    return message.role == TOOL or bool(message.tool_calls_json)
