"""Provider ``powerdns``: names in zones of PowerDNS servers."""

from __future__ import annotations

from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.powerdns.server import PARAMETERS, PowerDNSServer
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.secrets import HubSecrets, Secrets
from fairlead.runtime.clock import Clock, SystemClock


def create(
    *, cluster: Cluster | None = None, clock: Clock | None = None, secrets: Secrets | None = None
) -> DNSProvider:
    """Make the provider (entry point ``powerdns``); ``secrets``: where keys are read, by default at the hub."""
    clock = clock or SystemClock()
    keys = secrets or HubSecrets(cluster, clock=clock)
    return DNSProvider(make=lambda settings: PowerDNSServer(settings, secrets=keys), own=PARAMETERS, clock=clock)
