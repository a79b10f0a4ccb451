"""The egress rules of the NetworkPolicy: pods may reach the collector of their spans."""

import ipaddress
from urllib.parse import urlsplit

from imp_service.config import Settings

# The default port of OTLP over gRPC.
OTLP_PORT = 4317
Rule = dict[str, object]
DNS: Rule = {"ports": [{"port": 53, "protocol": "UDP"}, {"port": 53, "protocol": "TCP"}]}
# Suffixes of Service names, after SERVICE.NAMESPACE. A name without one may be an external domain.
_CLUSTER_ENDS = (("svc",), ("svc", "cluster", "local"))


def egress_rules(settings: Settings) -> list[Rule]:
    """Empty if there is no collector, or if it runs in the pod itself."""
    endpoint = settings.tracing.endpoint
    if endpoint is None:
        return []
    parts = urlsplit(endpoint if "//" in endpoint else f"//{endpoint}")
    host = parts.hostname or ""
    ports = [{"port": parts.port or OTLP_PORT, "protocol": "TCP"}]
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        if host == "localhost":
            return []
        return [DNS, {**_peer(host), "ports": ports}]
    if address.is_loopback:
        return []
    return [{"to": [{"ipBlock": {"cidr": f"{address}/{address.max_prefixlen}"}}], "ports": ports}]


def _peer(host: str) -> Rule:
    """The namespace of a Service; any peer for another name, because its addresses are not known."""
    _, *rest = host.split(".")
    if not rest:
        return {"to": [{"podSelector": {}}]}
    namespace, *end = rest
    if tuple(end) not in _CLUSTER_ENDS:
        return {}
    return {"to": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}}}]}
