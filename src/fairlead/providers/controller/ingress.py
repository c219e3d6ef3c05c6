"""Provider ``ingress``: Ingresses of any controller in the hub's cluster."""

from __future__ import annotations

from fairlead.kube.cluster import Cluster
from fairlead.providers.controller.ingress_form import IngressForm
from fairlead.providers.controller.provider import ControllerProvider


def create(cluster: Cluster) -> ControllerProvider:
    """Return the provider, for the cluster of the hub."""
    return ControllerProvider(cluster, IngressForm())
