"""Provider ``rfc2136``: names in zones of servers that take dynamic updates."""

from __future__ import annotations

from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.rfc2136.server import PARAMETERS, UpdateServer
from fairlead.providers.zones.secrets import HubSecrets, Secrets
from fairlead.runtime.clock import Clock, SystemClock


def create(
    *, cluster: Cluster | None = None, clock: Clock | None = None, secrets: Secrets | None = None
) -> DNSProvider:
    """Make the provider (entry point ``rfc2136``); ``secrets``: where keys are read, by default at the hub."""
    clock = clock or SystemClock()
    keys = secrets or HubSecrets(cluster, clock=clock)
    return DNSProvider(make=lambda settings: UpdateServer(settings, secrets=keys), own=PARAMETERS, clock=clock)
