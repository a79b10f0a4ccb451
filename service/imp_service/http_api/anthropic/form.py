"""Errors in Anthropic's form: a type and a message, and the request's id."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from imp_service.http_api.api_form import ApiForm
from imp_service.http_api.failures import message_of, status_of
from imp_service.http_api.json_text import dumps
from imp_service.serving.errors.failure import Failure

# A header that Anthropic's clients always send.
VERSION = "anthropic-version"
# Other statuses are errors of the request, or of the server.
TYPES: Mapping[HTTPStatus, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.NOT_FOUND: "not_found_error",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "request_too_large",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
    HTTPStatus.SERVICE_UNAVAILABLE: "overloaded_error",
    HTTPStatus.GATEWAY_TIMEOUT: "timeout_error",
}
# Agents and LiteLLM recognize a prompt that is too long by these words, and shorten it.
ANTHROPIC_WORDS: Mapping[str, str] = {"CONTEXT_TOO_LONG": "prompt is too long"}


class AnthropicForm(ApiForm):
    """Anthropic's API. Its clients read the id of a request from a header of its own."""

    id_headers = ("x-request-id", "request-id")

    def failure(self, failure: Failure, code: str | None, request_id: str) -> bytes:
        text, words = message_of(failure), ANTHROPIC_WORDS.get(failure.reason)
        return error_body(status_of(failure), text if words is None else f"{words}: {text}", request_id)

    def refusal(self, status: HTTPStatus, code: str, message: str, request_id: str) -> bytes:
        return error_body(status, message, request_id)

    def event(self, body: bytes) -> bytes:
        return b"event: error\ndata: %s\n\n" % body


def error_body(status: HTTPStatus, message: str, request_id: str) -> bytes:
    """An error as JSON."""
    usual = "api_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    error = {"type": TYPES.get(status, usual), "message": message}
    return dumps({"type": "error", "error": error, "request_id": request_id}).encode()


ANTHROPIC = AnthropicForm()
