"""Provider ``external-dns-annotations``: names as annotations of Services that external-dns writes into its zones.

For an external-dns that is not given DNSEndpoints to read. Annotations say addresses and CNAMEs, and no TXT records.
"""

from __future__ import annotations

from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.external_dns.server import ObjectServer
from fairlead.providers.zones.external_dns.service_form import ServiceForm
from fairlead.providers.zones.provider import DNSProvider
from fairlead.runtime.clock import Clock


def create(*, cluster: Cluster | None = None, clock: Clock | None = None) -> DNSProvider:
    """Make the provider (entry point ``external-dns-annotations``), for the cluster of the hub."""
    form = ServiceForm()
    return DNSProvider(
        make=lambda settings: ObjectServer(settings, form=form, cluster=cluster),
        own=frozenset(),
        clock=clock,
        texts=False,
    )
