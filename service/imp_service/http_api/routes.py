"""The paths of the HTTP transport: what each requires of its caller, and its handler. Other paths give 404."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from http import HTTPStatus

from imp_service.http_api.api_form import ApiForm
from imp_service.http_api.guard import HttpRefusal
from imp_service.http_api.http_call import HttpCall
from imp_service.http_api.openai.form import OPENAI
from imp_service.serving.security.authentication import Policy

# What a path requires of its caller.
GENERATES = Policy("data", needs_model=True, is_request=True)
# Reads of the model, and of the server; the second kind works while the model is loading.
READS = Policy("read", needs_model=True)
# What a caller needs before it generates: what the model is called, and how long its prompt is.
PREPARES = Policy("read", or_role="data", needs_model=True)
SHOWS = Policy("read")
# Needs no token: pages for browsers.
EVERYONE = Policy("anyone", is_public=True)
# Needs a token only if auth.public_health is off.
PROBE = Policy("anyone", is_health=True)
# The same for /metrics if http.public_metrics is on.
PUBLIC = Policy("anyone", is_health=True)
# /metrics on the listener of metrics, which has no tokens.
SCRAPED = Policy("anyone", is_health=True, is_public=True)

# How the paths of other APIs begin, and whose they are.
OTHER_APIS = {"/api/": "Ollama's", "/completion": "llama-server's own"}

Handler = Callable[[HttpCall], Awaitable[None]]
# Called with the part of the path that `{id}` matched.
HandlerOfPart = Callable[[HttpCall, str], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Route:
    """One path, or one with a variable end."""

    method: str
    path: str
    policy: Policy
    answer: Handler | HandlerOfPart
    # Another path with the same handler.
    alias: str = ""
    # The body may have images.
    takes_images: bool = False
    # The API that has it.
    form: ApiForm = OPENAI
    # Another API that has it too, and a header that its clients send.
    other_form: tuple[str, ApiForm] | None = None

    def form_for(self, headers: Mapping[str, str]) -> ApiForm:
        """The API that the caller speaks."""
        name, form = self.other_form or ("", self.form)
        return form if name in headers else self.form

    @property
    def has_body(self) -> bool:
        """The request carries JSON."""
        return self.method == "POST"

    @property
    def name(self) -> str:
        """The path in metrics and logs."""
        return self.path

    @property
    def paths(self) -> Iterator[str]:
        """Every spelling of the path."""
        yield self.path
        if self.alias:
            yield self.alias


class Routes:
    """Finds the route of a request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        self.all = routes
        self._by_path: dict[str, dict[str, Route]] = {}
        self._by_prefix: dict[str, dict[str, Route]] = {}
        for route in routes:
            for path in route.paths:
                prefix, variable, _ = path.partition("{")
                found = self._by_prefix if variable else self._by_path
                found.setdefault(prefix, {})[route.method] = route

    def find(self, method: str, path: str) -> tuple[Route, str]:
        """The route, and what its variable matched. Raises HttpRefusal. Nothing in the path is normalized."""
        by_method, part = self._methods(path)
        route = by_method.get("GET" if method == "HEAD" else method)
        if route is None:
            allowed = ", ".join(sorted({*by_method, *(("HEAD",) if "GET" in by_method else ())}))
            message = f"{method} is not allowed for this path, expected {allowed}"
            raise HttpRefusal(HTTPStatus.METHOD_NOT_ALLOWED, "method_not_allowed", message, [("allow", allowed)])
        return route, part

    def form_of(self, path: str, headers: Mapping[str, str]) -> ApiForm:
        """The form of errors about a path: that of the first route with which it begins."""
        begun = (route for route in self.all for known in route.paths if len(known) > 1 and path.startswith(known))
        return next((route.form_for(headers) for route in begun), OPENAI)

    def _methods(self, path: str) -> tuple[dict[str, Route], str]:
        if path in self._by_path:
            return self._by_path[path], ""
        for prefix, by_method in self._by_prefix.items():
            if path.startswith(prefix) and len(path) > len(prefix):
                return by_method, path.removeprefix(prefix)
        raise HttpRefusal(HTTPStatus.NOT_FOUND, "not_found", f"there is nothing at this path{self._hint(path)}")

    def _hint(self, path: str) -> str:
        """What the client's base URL may be instead."""
        within = max((each for each in self._by_path if len(each) > 1 and each in path), key=len, default="")
        if within:
            return f", did you mean {within}?"
        whose = next((owner for start, owner in OTHER_APIS.items() if path.startswith(start)), "")
        return f"; imp does not have {whose} API: set the client to an OpenAI base URL" if whose else ""
