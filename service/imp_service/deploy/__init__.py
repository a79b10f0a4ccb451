"""Manifests for Kubernetes: the bases of conf/kubernetes, filled in with what a model needs."""

from imp_service.deploy.bases import Base, BaseName, Document, read_base
from imp_service.deploy.conf import pod_conf
from imp_service.deploy.egress import egress_rules
from imp_service.deploy.manifests import Filling, fill, placeholders
from imp_service.deploy.sizing import Sizing, base_settings, size, termination_seconds

__all__ = [
    "Base",
    "BaseName",
    "Document",
    "Filling",
    "Sizing",
    "base_settings",
    "egress_rules",
    "fill",
    "placeholders",
    "pod_conf",
    "read_base",
    "size",
    "termination_seconds",
]
