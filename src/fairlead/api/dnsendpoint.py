"""DNSEndpoint of external-dns: records that its source ``crd`` reads; only the fields that we write or read.

Source: https://kubernetes-sigs.github.io/external-dns/latest/docs/sources/crd/
"""

from __future__ import annotations

import msgspec

from fairlead.api.meta import KubeObject, Resource, Wire


class Endpoint(Wire, frozen=True, gc=False):
    """One set of records: all values (targets) of one type that one name has."""

    dns_name: str = msgspec.field(default="", name="dnsName")
    record_type: str = ""
    record_ttl: int = msgspec.field(default=0, name="recordTTL")
    targets: list[str] | None = None


class DNSEndpointSpec(Wire, frozen=True, gc=False):
    """The sets of records."""

    endpoints: list[Endpoint] | None = None


class DNSEndpointStatus(Wire, frozen=True, gc=False):
    """The generation that external-dns has seen."""

    observed_generation: int = 0


class DNSEndpoint(KubeObject, frozen=True, gc=False):
    """Records that external-dns is to write."""

    spec: DNSEndpointSpec = DNSEndpointSpec()
    status: DNSEndpointStatus = DNSEndpointStatus()


DNS_ENDPOINTS = Resource("externaldns.k8s.io", "v1alpha1", "DNSEndpoint", "dnsendpoints", True, DNSEndpoint)
