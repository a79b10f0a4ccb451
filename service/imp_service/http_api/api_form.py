"""What all answers of one API have in common: the form of its errors, and the headers with the id of a request."""

from __future__ import annotations

from abc import ABC, abstractmethod
from http import HTTPStatus

from imp_service.serving.errors.failure import Failure


class ApiForm(ABC):
    """The form of one API."""

    id_headers: tuple[str, ...] = ("x-request-id",)

    @abstractmethod
    def failure(self, failure: Failure, code: str | None, request_id: str) -> bytes:
        """The body of a failed call. `code` replaces the code of the reason."""

    @abstractmethod
    def refusal(self, status: HTTPStatus, code: str, message: str, request_id: str) -> bytes:
        """The body of a refusal outside of every call."""

    @abstractmethod
    def event(self, body: bytes) -> bytes:
        """A failure as the last event of a stream. `body` is the body that it would have without a stream."""
