"""Provider ``external-dns``: names as DNSEndpoint objects that external-dns writes into its zones."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from fairlead.api.hostname import DNS_ENDPOINTS, DNSEndpoint, Endpoint
from fairlead.api.meta import JSONObject
from fairlead.kube.cluster import Cluster
from fairlead.providers.zones.external_dns.objects import value_of
from fairlead.providers.zones.external_dns.server import ObjectServer
from fairlead.providers.zones.provider import DNSProvider
from fairlead.providers.zones.rrsets import EMPTY, TYPES, RRKey, RRSet, RRSets, canonical_name
from fairlead.runtime.clock import Clock


def create(*, cluster: Cluster | None = None, clock: Clock | None = None) -> DNSProvider:
    """Make the provider (entry point ``external-dns``), for the cluster of the hub."""
    form = EndpointForm()
    return DNSProvider(
        make=lambda settings: ObjectServer(settings, form=form, cluster=cluster), own=frozenset(), clock=clock
    )


class EndpointForm:
    """One DNSEndpoint for each name."""

    kind = DNS_ENDPOINTS
    prefix = ""
    missing = "install external-dns's CustomResourceDefinition, and run it with --source=crd"
    refused = "is external-dns's CustomResourceDefinition an older one?"
    manifest = "deploy/kubernetes/external-dns.yaml"

    def records(self, obj: DNSEndpoint) -> Mapping[RRKey, RRSet]:
        """Return the records of an object; types that Fairlead does not write are left out."""
        rrsets: dict[RRKey, RRSet] = {}
        for endpoint in obj.spec.endpoints or ():
            if endpoint.record_type not in TYPES:
                continue
            key = RRKey(canonical_name(endpoint.dns_name), endpoint.record_type)
            values = frozenset(value_of(endpoint.record_type, target) for target in endpoint.targets or ())
            rrsets[key] = RRSet(rrsets.get(key, EMPTY).values | values, endpoint.record_ttl)
        return rrsets

    def body(self, host: str, rrsets: RRSets) -> JSONObject:
        """Return one endpoint for each type."""
        sets = [(type_, rrsets.get(RRKey(host, type_), EMPTY)) for type_ in TYPES]
        endpoints = [Endpoint(host, type_, each.ttl, sorted(each.values)) for type_, each in sets if each.values]
        return {"spec": {"endpoints": msgspec.to_builtins(endpoints)}}
