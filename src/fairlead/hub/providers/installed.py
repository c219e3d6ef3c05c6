"""The providers that a class can name: our own, and those that other packages bring as entry points.

In: the entry points ``fairlead.providers``. Out: a factory for each. Never: an import of what no class has named.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from prometheus_client import CollectorRegistry

from fairlead.kube.cluster import Cluster
from fairlead.model.contract import Provider
from fairlead.runtime.clock import Clock

GROUP = "fairlead.providers"
#: Ours, also where the package was not installed but only put on the path.
_OURS = {
    "memory": "fairlead.providers.memory",
    "webhook": "fairlead.providers.webhook.provider",
    "haproxy": "fairlead.providers.haproxy.provider",
    "ingress": "fairlead.providers.controller.ingress",
    "gateway": "fairlead.providers.controller.gateway",
    "powerdns": "fairlead.providers.zones.powerdns.provider",
    "external-dns": "fairlead.providers.zones.external_dns.provider",
    "external-dns-annotations": "fairlead.providers.zones.external_dns.annotations_provider",
    "rfc2136": "fairlead.providers.zones.rfc2136.provider",
}


def installed_providers(
    *,
    cluster: Cluster,
    clock: Clock,
    registry: CollectorRegistry,
    without: frozenset[str] = frozenset(),
    dry_run: bool = False,
) -> Mapping[str, Callable[[], Provider]]:
    """Return a factory for each provider that is installed, by name; ``without`` those that run already.

    ``cluster`` is the hub's own. ``dry_run``: nothing is to be changed; a provider that makes a difference of that may
    say so to others.
    """
    loaders: dict[str, Callable[[], Any]] = {name: _import(module) for name, module in _OURS.items()}
    loaders |= {point.name: point.load for point in entry_points(group=GROUP)}
    known = {"cluster": cluster, "clock": clock, "registry": registry, "dry_run": dry_run}
    return {name: _factory(load, known) for name, load in loaders.items() if name not in without}


def _import(module: str) -> Callable[[], Any]:
    return lambda: import_module(module).create


def _factory(load: Callable[[], Any], known: Mapping[str, object]) -> Callable[[], Provider]:
    def make() -> Provider:
        create = load()
        # A provider takes what it needs of these, by name.
        takes = inspect.signature(create).parameters
        provider: Provider = create(**{name: value for name, value in known.items() if name in takes})
        return provider

    return make
