"""The messages of a request as a conversation of imp."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from imp_service.api.chat_prompt import joined
from imp_service.http_api.anthropic.blocks import (
    IN_ASSISTANTS,
    IN_SYSTEM,
    IN_USERS,
    Block,
    CallResult,
    Part,
    PastCall,
    Thought,
    read_blocks,
)
from imp_service.http_api.requests.image_rules import ImageRules
from imp_service.http_api.requests.turns import one_turn
from imp_service.http_api.requests.values import WrongValue, anything, ignored, only, read_members, within
from imp_service.text import ChatMessage

USER, ASSISTANT, SYSTEM, TOOL = "user", "assistant", "system", "tool"
CONTENTS = {USER: IN_USERS, ASSISTANT: IN_ASSISTANTS, SYSTEM: IN_SYSTEM}
# Between the texts of two messages of the user that become one turn.
BETWEEN = "\n\n"
# A client that counts its requests begins a system message with this, and with words that differ in every request: no
# prefix would be found in the cache.
BILLING = "x-anthropic-billing-header:"


@dataclass(frozen=True, slots=True)
class HistoryTurn:
    """A message without its content, and its content with the place of each part in the request."""

    message: ChatMessage
    said: Sequence[Part]
    where: str = ""

    @property
    def whole(self) -> ChatMessage:
        """The message with its content."""
        has_content = self.said or not self.message.tool_calls_json
        return replace(self.message, content=joined(part for part, _ in self.said) if has_content else None)

    def placed(self, where: str) -> HistoryTurn:
        """The turn of the message at `where`, which has known the places only within itself."""
        return HistoryTurn(self.message, [(part, f"{where}.content{each}") for part, each in self.said], where)

    def then(self, turn: HistoryTurn) -> HistoryTurn:
        """This turn and the next one of the same role as one."""
        is_apart = self.message.role == USER and self.said and turn.said
        between: Sequence[Part] = [(BETWEEN, "")] if is_apart else []
        return HistoryTurn(one_turn(self.message, turn.message), [*self.said, *between, *turn.said], self.where)


def read_system(value: Any, rules: ImageRules) -> str:
    """The text of a system message. Raises WrongValue."""
    texts = []
    for block, where in read_blocks(value, IN_SYSTEM, rules):
        if str(block).startswith(BILLING):
            within(where, ignored, block)
        else:
            texts.append(str(block))
    return "".join(texts)


def read_history(value: Sequence[Any], rules: ImageRules) -> list[HistoryTurn]:
    """The turns. Consecutive messages of one role are one turn. Raises WrongValue."""
    names: dict[str, str] = {}
    found: list[HistoryTurn] = []
    for i, each in enumerate(value):
        for turn in within(f"[{i}]", _turns, each, names, rules):
            placed = turn.placed(f"[{i}]")
            if found and found[-1].message.role == turn.message.role in (USER, ASSISTANT):
                found[-1] = found[-1].then(placed)
            else:
                found.append(placed)
    return found


def _turns(value: Any, names: dict[str, str], rules: ImageRules) -> list[HistoryTurn]:
    """The turns of one message: a message of the user may have the results of calls."""
    given = read_members(value, {"role": only(*CONTENTS), "content": anything})
    for name in ("role", "content"):
        if name not in given:
            raise WrongValue("not set", f".{name}")
    role = given["role"]
    blocks = within(".content", read_blocks, given["content"], CONTENTS[role], rules)
    if role == ASSISTANT:
        return [_assistant(blocks, names)]
    return list(_said(role, blocks, names))


def _said(role: str, blocks: Sequence[tuple[Block, str]], names: dict[str, str]) -> Iterator[HistoryTurn]:
    """Texts and images, and each result of a call as a turn of its own."""
    said: list[Part] = []
    for block, where in blocks:
        if isinstance(block, CallResult):
            if said:
                yield HistoryTurn(ChatMessage(role, None), said)
            said = []
            parts = [(part, f"{where}.content{each}") for part, each in block.parts]
            yield HistoryTurn(ChatMessage(TOOL, None, names.get(block.call, ""), block.call), parts)
        elif block is not None:
            assert not isinstance(block, Thought | PastCall)  # no role but the assistant's has them
            said.append((block, where))
    if said or not blocks:
        yield HistoryTurn(ChatMessage(role, None), said)


def _assistant(blocks: Sequence[tuple[Block, str]], names: dict[str, str]) -> HistoryTurn:
    """Reasoning, then a text, then calls: in this order, whatever the order of the blocks."""
    calls = [block for block, _ in blocks if isinstance(block, PastCall)]
    names.update((call.id, call.name) for call in calls)
    written = [
        {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}
        for call in calls
    ]
    message = ChatMessage(
        ASSISTANT,
        None,
        tool_calls_json=json.dumps(written, ensure_ascii=False) if written else "",
        reasoning_content="".join(block.text for block, _ in blocks if isinstance(block, Thought)),
    )
    return HistoryTurn(message, [(block, where) for block, where in blocks if isinstance(block, str)])
