"""The status that tools such as Flux, Helm and kubectl compute for an object of a kind that they do not know.

Written from the public description of the algorithm.
Source: https://pkg.go.dev/sigs.k8s.io/cli-utils/pkg/kstatus/status
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def kstatus(obj: Mapping[str, Any]) -> str:
    """Return Terminating, InProgress, Failed or Current."""
    meta, status = obj.get("metadata", {}), obj.get("status") or {}
    if meta.get("deletionTimestamp"):
        return "Terminating"
    if "generation" in meta and "observedGeneration" in status and status["observedGeneration"] != meta["generation"]:
        return "InProgress"
    by_type = {condition["type"]: condition["status"] for condition in status.get("conditions") or ()}
    if by_type.get("Reconciling") == "True":
        return "InProgress"
    if by_type.get("Stalled") == "True":
        return "Failed"
    return "Current" if by_type.get("Ready", "True") == "True" else "InProgress"
