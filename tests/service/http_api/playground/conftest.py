"""Fixtures of the page's tests: a browser, a server, and the page in one of its sizes and colour schemes."""

from __future__ import annotations

import base64
import hashlib
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

from support.calls.generations import saying, spelled, vocabulary
from support.run.patience import HANGS_AFTER
from support.servers.http_served import HttpServed, serve_http
from support.servers.vision_served import vision_model

SAMPLE = """\
# Sorting in *Python*

Use `sorted`, which **keeps** the ~~old~~ list:

```python
def biggest(n):
    return sorted(n)[-1]  # <b>
```

1. First
   - nested *one*
2. Second

| name | n |
|:-----|--:|
| a_b  | 1 |

> See [the docs](https://docs.python.org/3/) or https://example.com/a_b.

- [x] Sort
- [ ] Test

With $n > 1$ it takes

$$\\sum_{k=1}^{n} \\log_2 k \\approx \\frac{n}{2} \\sqrt{n}$$
"""
# Milliseconds until an action of the browser counts as a hang, and so does a state that a test expects.
HANGS_AFTER_MS = HANGS_AFTER / 2 * 1000
expect.set_options(timeout=HANGS_AFTER_MS)
# The length of the prompt for "Hi".
TOKENS_OF_HI = 10
# Gives the page a file, as a user does who drops it or pastes it.
GIVE = """([data, type, way]) => {
    const files = new DataTransfer(), bytes = Uint8Array.from(atob(data), letter => letter.charCodeAt(0))
    files.items.add(new File([bytes], 'cat', { type }))
    const happens = { bubbles: true, cancelable: true }
    if (way === 'drop') document.body.dispatchEvent(new DragEvent('drop', { dataTransfer: files, ...happens }))
    else text.dispatchEvent(new ClipboardEvent('paste', { clipboardData: files, ...happens }))
}"""
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


@dataclass
class Visit:
    """The page, open in the browser, and a record of its activity."""

    page: Page
    origin: str
    # The messages and errors of its console.
    console: list[str] = field(default_factory=list)
    # All addresses that it requested, of this origin and of others.
    asked: list[str] = field(default_factory=list)
    # The bodies that it sent.
    bodies: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.console.append(str(error)))
        self.page.on("request", self._requested)

    def open(self) -> None:
        """Loads the page, or reloads it."""
        self.page.goto(f"{self.origin}/")

    def reload(self) -> None:
        """Reloads the page as its user does, and waits for the model."""
        self.page.reload()
        expect(self.page.locator("#model")).not_to_be_empty()

    def list_conversations(self) -> list[str]:
        """Opens the list of conversations, and returns their titles."""
        self.page.locator("#list").click()
        return list(self.page.locator("#chatlist li > :first-child span").all_text_contents())

    def say(self, text: str) -> None:
        """Sends a message."""
        self.page.get_by_label("Message").fill(text)
        self.page.keyboard.press("Enter")

    def ask(self, text: str) -> None:
        """Sends a message, and waits until its answer has ended."""
        n_before = self.page.locator(".turn").count()
        self.say(text)
        self.page.locator(".turn").nth(n_before).get_by_role("button", name="Same again").wait_for()

    def give(self, data: bytes, way: str, *, kind: str = "image/png") -> None:
        """Adds a picture to the next message."""
        if way == "choose":
            self.page.locator("#file").set_input_files([{"name": "cat", "mimeType": kind, "buffer": data}])
        else:
            self.page.evaluate(GIVE, [base64.b64encode(data).decode(), kind, way])

    def set(self, **parameters: Any) -> None:
        """Sets parameters by the id of their field. In a narrow window they are in a drawer."""
        if is_in_drawer := self.page.locator("#tune").is_visible():
            self.page.locator("#tune").click()
        for name, value in parameters.items():
            self.page.locator(f"#{name}").fill(str(value))
        if is_in_drawer:
            self.button("Close").click()

    def button(self, name: str) -> Any:
        """Returns the button with this name, and the last of several."""
        return self.page.get_by_role("button", name=name, exact=True).last

    @property
    def answer(self) -> str:
        """Switches the last answer to plain text and returns it."""
        plain = self.button("Plain text")
        if plain.get_attribute("aria-pressed") == "false":
            plain.click()
        return self.page.locator(".reply").last.text_content() or ""

    @property
    def figures(self) -> str:
        """Returns the line about the last answer, and what it hides."""
        return str(self.page.locator(".figures").last.text_content())

    @property
    def left_origin(self) -> list[str]:
        """Returns the requested addresses of other origins."""
        return [url for url in self.asked if not url.startswith((f"{self.origin}/", "data:"))]

    def _heard(self, message: ConsoleMessage) -> None:
        self.console.append(message.text)

    def _requested(self, request: Request) -> None:
        self.asked.append(request.url)
        if request.method == "POST":
            self.bodies.append(request.post_data_json)


Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Debian's Chromium, with a profile of its own."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("no chromium: apt install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield started
        started.close()


@pytest.fixture(scope="session")
def sample() -> str:
    """An answer in Markdown, with each kind of block."""
    return SAMPLE


@pytest.fixture(scope="module")
def formatted(sample: str) -> Iterator[HttpServed]:
    """A server whose model answers "Hi" with the sample."""
    table = [*[0] * (TOKENS_OF_HI - 1), *spelled(sample), min(vocabulary().eos_ids)]
    with serve_http("model.overrides.default_sampling.temperature=0", model=saying(table, max_context=2048)) as it:
        yield it


@pytest.fixture(scope="module")
def seeing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    """A server of a model that reads images. No token ends its answers."""
    model = vision_model(tmp_path_factory.mktemp("vision"))
    with serve_http("model.overrides.eos_token_ids=[]", model=model) as it:
        yield it


@pytest.fixture
def key() -> str:
    """The key of the guarded server."""
    return "open-sesame"


@pytest.fixture
def guarded(tmp_path: Path, key: str) -> Iterator[HttpServed]:
    """A server that requires a key, also for its health."""
    tokens = tmp_path / "tokens"
    tokens.touch(mode=0o600)
    tokens.write_text(f"{hashlib.sha256(key.encode()).hexdigest()} data,read *\n")
    settings = (f"auth.token_file={tokens}", "auth.public_health=false")
    with serve_http(*settings, metadata=[("authorization", f"Bearer {key}")]) as it:
        yield it


@pytest.fixture
def visit(browser: Browser) -> Open:
    """Opens the page of a server or an origin, with animations off."""

    @contextmanager
    def visiting(http: HttpServed | str, *, width: int = 1400, scheme: Any = "light") -> Iterator[Visit]:
        origin = http if isinstance(http, str) else http.url.removesuffix("/v1")
        size = {"width": width, "height": 900}
        with browser.new_context(viewport=size, color_scheme=scheme, reduced_motion="reduce") as made:  # type: ignore[arg-type]
            page = made.new_page()
            page.set_default_timeout(HANGS_AFTER_MS)
            opened = Visit(page, origin)
            opened.open()
            yield opened

    return visiting
