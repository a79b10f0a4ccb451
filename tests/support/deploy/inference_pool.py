"""Strict schemas of the documents that the Gateway API Inference Extension and llm-d's endpoint picker read.

Their fields are those of `api/v1/inferencepool_types.go` and of `EndpointPickerConfig`. They refuse other fields.
"""

from __future__ import annotations

from typing import Any

Schema = dict[str, Any]

NAME: Schema = {"type": "string", "minLength": 1, "maxLength": 253, "pattern": "^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$"}
LABEL_VALUE: Schema = {"type": "string", "maxLength": 63, "pattern": "^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$"}
PORT: Schema = {"type": "integer", "minimum": 1, "maximum": 65535}


def closed(required: dict[str, Schema], optional: dict[str, Schema] | None = None) -> Schema:
    """Returns the schema of an object with these members and no others."""
    members = {**required, **(optional or {})}
    return {"type": "object", "properties": members, "required": list(required), "additionalProperties": False}


def listed(item: Schema, most: int = 64) -> Schema:
    """Returns the schema of a list with at least one item."""
    return {"type": "array", "items": item, "minItems": 1, "maxItems": most}


LABELS: Schema = {"type": "object", "additionalProperties": LABEL_VALUE}
INFERENCE_POOL = closed(
    {
        "apiVersion": {"const": "inference.networking.k8s.io/v1"},
        "kind": {"const": "InferencePool"},
        "metadata": closed({"name": NAME}, {"labels": LABELS, "annotations": {"type": "object"}}),
        "spec": closed(
            {
                "selector": closed({"matchLabels": {**LABELS, "minProperties": 1}}),
                "targetPorts": listed(closed({"number": PORT}), 8),
                "endpointPickerRef": closed(
                    {"name": NAME},
                    {
                        "group": {"type": "string"},
                        "kind": {"type": "string"},
                        "port": closed({"number": PORT}),
                        "failureMode": {"enum": ["FailOpen", "FailClose"]},
                    },
                ),
            }
        ),
    }
)

METRIC: Schema = {"type": "string", "pattern": "^[a-zA-Z_:][a-zA-Z0-9_:]*(\\{.*\\})?$"}
ENGINE = closed(
    {"name": NAME, "queuedRequestsSpec": METRIC, "runningRequestsSpec": METRIC, "kvUsageSpec": METRIC},
    {"loraSpec": METRIC, "cacheInfoSpec": METRIC},
)
# Type of a plugin -> its parameters.
PLUGINS: dict[str, Schema] = {
    "metrics-data-source": closed({}),
    "core-metrics-extractor": closed(
        {"engineConfigs": listed(ENGINE)}, {"defaultEngine": NAME, "engineLabelKey": NAME}
    ),
    "queue-scorer": closed({}),
    "kv-cache-utilization-scorer": closed({}),
    "prefix-cache-scorer": closed({}),
    "max-score-picker": closed({}),
}
PLUGIN: Schema = {
    "oneOf": [closed({"type": {"const": kind}}, {"name": NAME, "parameters": each}) for kind, each in PLUGINS.items()]
}
PICKER = closed(
    {
        "apiVersion": {"const": "llm-d.ai/v1alpha1"},
        "kind": {"const": "EndpointPickerConfig"},
        "plugins": listed(PLUGIN),
        "schedulingProfiles": listed(
            closed({"name": NAME, "plugins": listed(closed({"pluginRef": NAME}, {"weight": {"type": "number"}}))})
        ),
    },
    {
        "dataLayer": closed(
            {"sources": listed(closed({"pluginRef": NAME, "extractors": listed(closed({"pluginRef": NAME}))}))}
        )
    },
)
