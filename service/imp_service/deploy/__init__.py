"""Writes manifests for Kubernetes and a systemd unit, with the resources that a model needs."""

from imp_service.deploy.bases import Base, BaseName, Document, read_base
from imp_service.deploy.conf import pod_conf
from imp_service.deploy.egress import Rule, egress_rules
from imp_service.deploy.fetch import Fetch
from imp_service.deploy.manifests import Filling, fill, placeholders
from imp_service.deploy.sizing import Sizing, base_settings, size, termination_seconds
from imp_service.deploy.unit import UnitFilling, fill_unit, read_unit

__all__ = [
    "Base",
    "BaseName",
    "Document",
    "Fetch",
    "Filling",
    "Rule",
    "Sizing",
    "UnitFilling",
    "base_settings",
    "egress_rules",
    "fill",
    "fill_unit",
    "placeholders",
    "pod_conf",
    "read_base",
    "read_unit",
    "size",
    "termination_seconds",
]
