"""A server of a tiny model that reads images."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.servers.http_served import HttpServed, serve_http
from support.servers.served import Served
from support.servers.vision_served import vision_model


@pytest.fixture(scope="package")
def http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServed]:
    model = vision_model(tmp_path_factory.mktemp("vision"))
    settings = ("media.images=3", "media.waiting_bytes=32MiB", "features.logits=true")
    with serve_http(*settings, "log.format=json", "log.level=debug", model=model) as it:
        yield it


@pytest.fixture(scope="package")
def served(http: HttpServed) -> Served:
    return http.served
