"""Several prompts at once: their requests, their generations, and errors that name the prompt."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Generic, Protocol, Self, TypeVar

from .arguments import request_of
from .chat_prompt import ChatPrompt, InfillPrompt, PromptParts
from .errors import Error, FieldsInvalid, ResourceExhausted, Violation, error_of, invalid
from .image import Image
from .options import GenerationRequest, Prompt
from .replies import GenerationResult

Prompts = list[str] | tuple[str, ...] | list[list[int]] | list[ChatPrompt] | list[GenerationRequest]
# The fields of a request that its prompt sets.
_OF_PROMPT = ("prompt", "text", "token_ids", "chat", "parts", "infill")


class OneGeneration(Protocol):
    """One of them."""

    @property
    def is_open(self) -> bool:
        """It still runs."""

    def results(self) -> list[GenerationResult]:
        """Waits for the end."""

    def cancel(self) -> None:
        """Ends it, from any thread."""

    def close(self) -> None:
        """Ends it and drops what was not read."""


G = TypeVar("G", bound=OneGeneration)


def requests_of(
    prompt: Prompt | GenerationRequest | Prompts, options: dict[str, Any]
) -> GenerationRequest | list[GenerationRequest]:
    """The request of a prompt, or those of several. A list of numbers is one prompt."""
    given: Any = prompt
    is_list = isinstance(given, list | tuple) and len(given) > 0
    if is_list and isinstance(given[0], Mapping):
        raise invalid("prompt", "a list of messages, expected text or token ids: chat() takes messages")
    if is_list and any(isinstance(each, Image) for each in given):
        return request_of(PromptParts(tuple(given)), options)
    if not is_list or not isinstance(given[0], Sized | ChatPrompt | PromptParts | InfillPrompt | GenerationRequest):
        return request_of(given, options)
    if options.get("resume") is not None:
        raise invalid("resume", "given, expected none with several prompts")
    found = []
    for i, each in enumerate(given):
        with naming_prompt(i):
            found.append(request_of(each, dict(options)))
    return found


@contextmanager
def naming_prompt(index: int) -> Iterator[None]:
    """Errors name the prompt of several."""
    name = f"prompt[{index}]"
    try:
        yield
    except FieldsInvalid as error:
        raise FieldsInvalid(
            [Violation(_path_in(name, each.path), each.message) for each in error.violations]
        ) from error
    except Error as error:
        named = error_of(type(error), error.reason, f"{name}: {error.message}", error.details)
        named.retry_after = error.retry_after
        raise named from error


def _path_in(name: str, path: str) -> str:
    for field in _OF_PROMPT:
        if path == field or path.startswith((f"{field}.", f"{field}[")):
            return name + path.removeprefix(field)
    return path


class Several(ABC, Generic[G]):
    """What is the same for generations in this process and on a server."""

    def __init__(self, begins: Sequence[Callable[[], G]], at_once: int) -> None:
        """`begins` has a function for each prompt that begins it. At most `at_once` run at the same time."""
        self._begins = begins
        self._at_once = at_once
        self._begun: list[G] = []
        # Those that may still run.
        self._open: list[G] = []

    def __len__(self) -> int:
        return len(self._begins)

    def __getitem__(self, index: int) -> G:
        """The generation of one prompt. Waits until it begins."""
        place = range(len(self))[index]
        while len(self._begun) <= place < len(self):
            self._go_on(least=place + 1)
        return self._begun[place]

    def __iter__(self) -> Iterator[G]:
        return (self[i] for i in range(len(self)))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Generations of {len(self)} prompts: results() waits for their outputs, in the order of the prompts>"

    def results(self) -> list[GenerationResult]:
        """Waits for all, and returns the outputs in the order of the prompts.

        If one fails, its error, which names the prompt, is raised, and the others end.
        """
        found = []
        try:
            for i, each in enumerate(self):
                with naming_prompt(i):
                    found += each.results()
        except BaseException:
            self.close()
            raise
        return found

    def cancel(self) -> None:
        """Ends all, from any thread. Those that have begun keep their output so far; no further ones begin."""
        self._begins = self._begins[: len(self._begun)]
        for each in self._begun:
            each.cancel()

    def close(self) -> None:
        """Cancels what still runs. Replies not yet read are dropped."""
        self._begins = self._begins[: len(self._begun)]
        for each in self._begun:
            each.close()

    @abstractmethod
    def _go_on(self, least: int) -> None:
        """Begins further ones, perhaps after waiting for earlier ones; with `least`, so many in all."""

    def _begin(self, least: int = 0) -> None:
        """Begins those for which there is room, and so many in all. A full queue takes no more until one ends."""
        self._open = [each for each in self._open if each.is_open]
        while (n := len(self._begun)) < len(self._begins) and (n < least or len(self._open) < self._at_once):
            try:
                with naming_prompt(n):
                    begun = self._begins[n]()
            except ResourceExhausted:
                if not self._open:
                    raise
                return
            self._begun.append(begun)
            self._open.append(begun)
