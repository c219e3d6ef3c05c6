"""Provider ``external-dns``: names as DNSEndpoint objects that external-dns writes into its zones."""

from __future__ import annotations

from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.external_dns.endpoint_form import EndpointForm
from fairlead.providers.zones.external_dns.server import ObjectServer
from fairlead.providers.zones.provider import DNSProvider
from fairlead.runtime.clock import Clock


def create(*, cluster: Cluster | None = None, clock: Clock | None = None) -> DNSProvider:
    """Make the provider (entry point ``external-dns``), for the cluster of the hub."""
    form = EndpointForm()
    return DNSProvider(
        make=lambda settings: ObjectServer(settings, form=form, cluster=cluster), own=frozenset(), clock=clock
    )
