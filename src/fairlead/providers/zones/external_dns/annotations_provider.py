"""Provider ``external-dns-annotations``: names as annotations of Services that external-dns writes into its zones.

For an external-dns that is not given DNSEndpoints to read. Annotations say addresses and CNAMEs, and no TXT records.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.kubernetes import SERVICES, Service
from fairlead.api.meta import JSONObject
from fairlead.kube.cluster import Cluster
from fairlead.model.in_words import whole_number
from fairlead.model.keys import IPV4, family_of
from fairlead.providers.zones.external_dns.provider import ObjectServer, value_of
from fairlead.providers.zones.plan import AAAA, CNAME, EMPTY, A, RRKey, RRSet, RRSets, canonical_name
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


#: As external-dns is released now, and as it was before 0.22.
PREFIXES = ("external-dns.kubernetes.io/", "external-dns.alpha.kubernetes.io/")
_TYPES = (A, AAAA, CNAME)


class ServiceForm:
    """One Service with annotations for each name."""

    kind = SERVICES
    #: The name of a Service begins with a letter.
    prefix = "dns-"
    missing = "every cluster has this kind: check the API server's log"
    refused = "an admission policy of the hub's cluster may forbid it"
    manifest = "deploy/kubernetes/external-dns-annotations.yaml"

    def records(self, obj: Service) -> Mapping[RRKey, RRSet]:
        """Return the records that external-dns makes of a Service, from its annotations and its addresses."""
        hosts = _annotated(obj, "hostname")
        ingress = obj.status.load_balancer.ingress or ()
        targets = _annotated(obj, "target") or [entry.address for entry in ingress if entry.address]
        ttl = next(iter(_annotated(obj, "ttl")), "")
        rrsets: dict[RRKey, RRSet] = {}
        for target in targets:
            family = family_of(target)
            type_ = CNAME if family is None else A if family == IPV4 else AAAA
            for host in hosts:
                key = RRKey(canonical_name(host), type_)
                values = rrsets.get(key, EMPTY).values | {value_of(type_, target)}
                rrsets[key] = RRSet(values, whole_number(ttl) or 0)
        return rrsets

    def body(self, host: str, rrsets: RRSets) -> JSONObject:
        """Return the annotations of ``host``, with both prefixes."""
        sets = [rrsets.get(RRKey(host, type_), EMPTY) for type_ in _TYPES]
        values = {
            "hostname": host,
            "target": ",".join(value for rrset in sets for value in sorted(rrset.values)),
            "ttl": str(max(rrset.ttl for rrset in sets)),
        }
        annotations = {f"{prefix}{name}": value for prefix in PREFIXES for name, value in values.items()}
        return {"annotations": annotations, "spec": {"type": "ClusterIP", "clusterIP": "None"}}


def _annotated(obj: Service, name: str) -> list[str]:
    text = next((text for prefix in PREFIXES if (text := obj.annotation(f"{prefix}{name}"))), "")
    return [part.strip() for part in text.split(",") if part.strip()]
