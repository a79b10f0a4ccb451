"""The container that downloads a model: what the pod may reach for it, and the volume that it fills."""

from __future__ import annotations

import pytest

from imp_service.deploy.fetch import Fetch

DNS = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}


@pytest.mark.parametrize(
    ("hub", "port"), [(None, 443), ("https://hub.test", 443), ("http://hub.test", 80), ("http://hub.test:8080", 8080)]
)
def test_lif_19_the_network_policy_allows_the_hub_and_its_name(hub: str | None, port: int) -> None:
    assert Fetch("own/one", "c", 1, hub).egress() == [DNS, {"ports": [{"port": port, "protocol": "TCP"}]}]


@pytest.mark.parametrize(("n_bytes", "size"), [(1024**3, "1280Mi"), (1024**3 + 1, "1281Mi")])
def test_lif_19_the_volume_holds_the_model_and_256_mib_more(n_bytes: int, size: str) -> None:
    assert Fetch("own/one", "c", n_bytes, None).volume() == {"emptyDir": {"sizeLimit": size}}
