"""Read the TLS part of a kubeconfig's cluster, to be handed on without its credentials."""

from __future__ import annotations

import base64
import os
from pathlib import Path

from fairlead.api.meta import JSONObject
from fairlead.kube.kubeconfig import SERVICE_ACCOUNT, Kubeconfig


def cluster_trust(kubeconfig: Path | None, context: str = "") -> JSONObject:
    """Return the fields of a kubeconfig's ``cluster`` that name the certificate authority; empty for plain HTTP."""
    paths = _paths(kubeconfig)
    if not paths:
        authority = SERVICE_ACCOUNT / "ca.crt"
        return {"certificate-authority-data": _base64(authority.read_bytes())} if authority.is_file() else {}
    chosen = Kubeconfig.read(paths).choose(context)
    fields: JSONObject = {}
    if data := chosen.material().authority:
        fields["certificate-authority-data"] = _base64(data)
    for field in ("tls-server-name", "insecure-skip-tls-verify"):
        if chosen.cluster.get(field):
            fields[field] = chosen.cluster[field]
    return fields


def _paths(kubeconfig: Path | None) -> list[Path]:
    if kubeconfig is not None:
        return [kubeconfig.expanduser()]
    named = [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [path for path in named or [Path.home() / ".kube" / "config"] if path.exists()]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()
