"""imp bench --server: its requests, its counts, and the page that it writes."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from threading import Lock

import grpc
import pytest
from google.rpc.error_details_pb2 import ErrorInfo

from imp_service.pb.inference_pb2 import GenerateRequest
from imp_service.pb.model_pb2 import GetModelInfoResponse, GetServerInfoResponse
from support.machine.command_line import error_lines
from support.servers.scripted_server import refuse, scripted_server, story

MODEL = GetModelInfoResponse(
    model="demo <1>", architecture="tiny", vocab_size=50, max_context_tokens=64, eos_token_ids=[2], bos_token_id=1
)
SMALL = ("--prompt-tokens", "12", "--tokens", "5", "--requests", "2", "--reps", "3", "--streams", "1,3")


class Server:
    """Answers each request except every `refuses`-th; keeps the requests and the highest number that ran at once."""

    def __init__(self, refuses: int = 0) -> None:
        self.refuses = refuses
        self.asked: list[GenerateRequest] = []
        self.lock = Lock()

    def generate(self, request, context):
        with self.lock:
            self.asked.append(request)
            number = len(self.asked)
        if self.refuses and number % self.refuses == 0:
            info = ErrorInfo(reason="QUEUE_FULL", domain="imp.v1")
            refuse(context, grpc.StatusCode.RESOURCE_EXHAUSTED, "full", info)
        yield from story(*"x" * request.stop.max_tokens)

    def open(self):
        return scripted_server(
            Generate=self.generate,
            GetModelInfo=lambda request, context: iter([MODEL]),
            GetServerInfo=lambda request, context: iter([GetServerInfoResponse(version="9", device="cpu", threads=2)]),
        )


def test_each_level_asks_what_the_plan_says(call):
    server = Server()
    with server.open() as address:
        status, out, err = call("bench", "--server", address, *SMALL, "--json")
    assert (status, err) == (0, "")
    report = json.loads(out)
    assert (report["version"], report["model"], report["plan"]["levels"]) == (1, "demo <1>", [1, 3])
    assert [(level["level"], level["requests"], level["failures"]) for level in report["levels"]] == [
        (1, 1 * 2 * 3, {}),
        (3, 3 * 2 * 3, {}),
    ]
    for level in report["levels"]:
        assert len(level["tokens_per_s"]) == 3
        assert level["tokens_per_message"] == 1.0
        assert level["first_token"]["n"] == level["requests"]
        assert level["inter_token"]["n"] == 4 * level["requests"]
        assert 0 < level["first_token"]["p50"] <= level["first_token"]["p90"] <= level["first_token"]["p99"]
    warm_up, measured = server.asked[:4], server.asked[4:]
    assert [request.stop.max_tokens for request in measured] == [5] * 24
    assert [len(request.token_ids.ids) for request in warm_up] == [12] * 4
    # All prompts differ, so no cache can answer. They contain no special token.
    assert len({tuple(request.token_ids.ids) for request in server.asked}) == 28
    assert {1, 2}.isdisjoint(token for request in server.asked for token in request.token_ids.ids)
    assert all(request.stop.ignore_eos and request.sampling.temperature == 0 for request in server.asked)


def test_refusals_are_counted_by_their_reason_and_not_asked_again(call):
    server = Server(refuses=4)
    with server.open() as address:
        status, out, _ = call("bench", "--server", address, *SMALL)
    assert (status, len(server.asked)) == (0, 28)
    rows = [line for line in out.splitlines() if re.match(r"[13] ", line)]
    refused = sum(int(found[1]) for row in rows if (found := re.search(r"(\d+) QUEUE_FULL$", row)))
    assert refused == 24 // 4


def test_the_page_and_the_terminal_show_the_same_table(call, tmp_path):
    with Server(refuses=5).open() as address:
        status, out, _ = call("bench", "--server", address, *SMALL, "--html", "page.html")
    assert status == 0
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    rows = [re.findall(r"<t[hd]>([^<]*)</t[hd]>", row) for row in re.findall(r"<tr>.*?</tr>", text)]
    assert [re.split(r" {2,}", line) for line in out.splitlines()[-3:]] == rows


def test_where_nothing_succeeds_the_status_says_so(call):
    with Server(refuses=1).open() as address:
        status, _, err = call("bench", "--server", address, *SMALL)
    assert (status, err) == (70, "imp: error: QUEUE_FULL: every request failed, 6 of the first level for this reason\n")


class Page(HTMLParser):
    """Collects a page's tags and everything that a browser would fetch for it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.fetched: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.fetched += [f"{tag} {name}" for name, _ in attributes if name in ("src", "href", "srcset", "data")]


def test_the_page_needs_nothing_else_and_draws_what_was_measured(call, tmp_path):
    with Server(refuses=5).open() as address:
        status, out, err = call("bench", "--server", address, *SMALL, "--html", "page.html", "--json")
    assert err == ""
    text = (tmp_path / "page.html").read_text(encoding="utf-8")
    page = Page(text)
    assert (status, page.fetched) == (0, [])
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert "url(" not in text and "@import" not in text
    assert "demo &lt;1&gt;" in text and "demo <1>" not in text
    assert "prefers-color-scheme: dark" in text
    charts = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.DOTALL)]
    assert [len(chart.findall("polyline")) for chart in charts] == [1, 3, 3]
    # Higher on the page is more: the order of the median throughputs is the measured one.
    rates = [sorted(level["tokens_per_s"])[1] for level in json.loads(out)["levels"]]
    heights = [float(circle.attrib["cy"]) for circle in charts[0].findall("circle")]
    assert (rates[0] < rates[1]) == (heights[0] > heights[1])


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--server", "a:1", "--prefill", "8"), "--prefill: has no effect with --server"),
        (("--server", "a:1", "--set", "device.threads=1"), "--set: has no effect with --server"),
        (("--streams", "4"), "--streams: has no effect without --server"),
        (("--html", "page.html"), "--html: has no effect without --server"),
        (("--tls",), "--tls: has no effect without --server"),
        (("--server", "a:1", "--streams", "0"), "expected numbers of at least 1"),
    ],
)
def test_options_of_the_other_kind_of_bench_are_refused(call, words, complaint):
    status, out, err = call("bench", *words)
    assert (status, out) == (64, "")
    assert complaint in error_lines(err)[-1]


def test_what_does_not_fit_the_context_is_refused_before_it_is_asked(call):
    server = Server()
    with server.open() as address:
        status, _, err = call("bench", "--server", address, "--prompt-tokens", "60", "--tokens", "5")
    assert (status, server.asked) == (64, [])
    assert err == (
        "imp: error: FIELD_INVALID: prompts of 60 and answers of 5 tokens are 65, "
        "expected at most 64: the context of demo <1>\n"
    )
