"""Health checks of Argo CD, run as Argo CD runs them: a Lua 5.1 script with the object in the global ``obj``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lupa import lua51

OURS = Path(__file__).parents[1] / "deploy" / "argocd" / "fairlead.dev" / "_"


def health(script: str, obj: Mapping[str, Any]) -> tuple[str, str]:
    """Return status and message of ``obj`` by a health check."""
    lua: Any = lua51.LuaRuntime(unpack_returned_tuples=True)
    lua.globals().obj = lua.table_from(obj, recursive=True)
    answer = lua.execute(script)
    return str(answer.status), str(answer.message)


def built_in(obj: Mapping[str, Any]) -> str:
    """Return the status by the checks that Argo CD has itself for a Service, an Ingress, a Gateway or a route.

    Written from what its documentation and scripts say.
    """
    status: Mapping[str, Any] = obj.get("status") or {}
    if obj["kind"] in ("Service", "Ingress"):
        ingress = (status.get("loadBalancer") or {}).get("ingress") or []
        return "Healthy" if any(entry.get("ip") or entry.get("hostname") for entry in ingress) else "Progressing"
    parts = status.get("parents") if "parents" in status else [status, *(status.get("listeners") or [])]
    conditions = [condition for part in parts or [] for condition in part.get("conditions") or []]
    if any(each["type"] in ("Accepted", "ResolvedRefs") and each["status"] == "False" for each in conditions):
        return "Degraded"
    waits = any(each["type"] == "Programmed" and each["status"] != "True" for each in conditions)
    return "Healthy" if conditions and not waits else "Progressing"
