"""The revision of the API."""

from __future__ import annotations

# Counts additions to imp.v1.
API_REVISION = 11
