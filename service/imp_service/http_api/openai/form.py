"""Errors in OpenAI's form: message, type, param and code."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus

from imp_service.http_api.api_form import ApiForm
from imp_service.http_api.failures import message_of, status_of
from imp_service.http_api.json_text import dumps
from imp_service.serving.errors.failure import Failure

# Reasons for which OpenAI has a code of its own.
CODES: Mapping[str, str] = {
    "CONTEXT_TOO_LONG": "context_length_exceeded",
    "MODEL_NOT_SERVED": "model_not_found",
    "TOKEN_MISSING": "invalid_api_key",
    "TOKEN_INVALID": "invalid_api_key",
    "QUEUE_FULL": "rate_limit_exceeded",
    "TENANT_LIMIT": "rate_limit_exceeded",
    "CANCELLED": "aborted",
}
# LangChain and LiteLLM recognize a prompt that is too long by these words of OpenAI's. They ignore the code.
OPENAI_WORDS: Mapping[str, str] = {"CONTEXT_TOO_LONG": "Input tokens exceed the configured limit"}
TYPES: Mapping[HTTPStatus, str] = {
    HTTPStatus.UNAUTHORIZED: "authentication_error",
    HTTPStatus.FORBIDDEN: "permission_error",
    HTTPStatus.TOO_MANY_REQUESTS: "rate_limit_error",
}


class OpenAiForm(ApiForm):
    """OpenAI's API."""

    def failure(self, failure: Failure, code: str | None, request_id: str) -> bytes:
        param = failure.violations[0].path if failure.violations else None
        words = OPENAI_WORDS.get(failure.reason)
        text = message_of(failure)
        message = text if words is None else f"{words}: {text}"
        return error_body(status_of(failure), code or CODES.get(failure.reason, failure.reason.lower()), message, param)

    def refusal(self, status: HTTPStatus, code: str, message: str, request_id: str) -> bytes:
        return error_body(status, code, message)

    def event(self, body: bytes) -> bytes:
        return b"data: %s\n\n" % body


def error_body(status: HTTPStatus, code: str, message: str, param: str | None = None) -> bytes:
    """An error as JSON."""
    usual = "server_error" if status >= HTTPStatus.INTERNAL_SERVER_ERROR else "invalid_request_error"
    error = {"message": message, "type": TYPES.get(status, usual), "param": param, "code": code}
    return dumps({"error": error}).encode()


OPENAI = OpenAiForm()
