"""How does a short command reach an API: impatiently, because a person is waiting."""

from __future__ import annotations

from pathlib import Path

from fairlead.kube.cluster import Cluster
from fairlead.kube.transport import RetryPolicy

IMPATIENT = RetryPolicy(attempts=3, base_s=0.2, limit_s=1.0, deadline_s=10.0, connect_s=4.0, read_s=8.0)


def connect(kubeconfig: Path | None, *, name: str, context: str | None = None) -> Cluster:
    """Open the cluster of a kubeconfig for one command."""
    return Cluster.from_kubeconfig(kubeconfig, context=context, name=name, policy=IMPATIENT)
