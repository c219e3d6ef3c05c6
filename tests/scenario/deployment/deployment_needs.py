"""What a hub needs next to what it checks for at its start: what it writes for tenants, and what groups select from."""

from __future__ import annotations

from fairlead.api.kubernetes import NODES, PODS, SECRETS, SERVICES
from fairlead.kube.discovery import AccessNeed
from fairlead.providers.envoy.kubernetes.objects import WRITTEN


def tenant_needs(namespace: str = "") -> list[AccessNeed]:
    """Return what a hub with proxies in the cluster writes in each tenant's namespace; it binds this role itself."""
    needs = [AccessNeed(verb, each, namespace) for each in WRITTEN for verb in ("create", "patch", "delete")]
    return needs + [AccessNeed(verb, SECRETS, namespace) for verb in ("get", "create", "patch", "delete")]


def group_needs() -> list[AccessNeed]:
    """Return the rights to read what BackendGroups select from; without them only such groups are not served."""
    return [AccessNeed(verb, resource) for resource in (PODS, SERVICES, NODES) for verb in ("get", "list", "watch")]
