"""Problems of names, certificates and addresses, one ``Problem`` for each, in the order of their objects.

In: AddressPools, DNSZones, the Hostnames that they hold, ManagedCertificates, the time. Out: problems. A name that no
zone holds is none: its records may be kept by hand. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime

from fairlead.api.addresspool import ADDRESS_POOLS, AddressPool
from fairlead.api.dnszone import DNS_ZONES, DNSZone
from fairlead.api.hostname import HOSTNAMES, Hostname
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.meta import KubeObject, WireCondition
from fairlead.status.conditions import findings_of
from fairlead.status.rows import Problem, Trouble
from fairlead.translate.certificates import ending


def of_pools(pools: Iterable[AddressPool]) -> Iterator[Problem]:
    """Say which pools give no addresses, and which are almost used up."""
    for pool in sorted(pools, key=lambda pool: pool.metadata.name):
        status, name = pool.status, pool.metadata.name
        invalid = list(_first_findings("pool", [(pool, status.conditions)], ADDRESS_POOLS.kind))
        yield from invalid
        taken = status.used + status.reserved
        exhausted = taken >= status.size or 0 in (status.free_ipv4, status.free_ipv6)
        if not invalid and status.size and (exhausted or taken >= _ALMOST_FULL * status.size):
            reason = "AddressPoolExhausted" if exhausted else "AddressPoolAlmostFull"
            use = f"{taken} of {status.size} addresses are used or reserved"
            yield Problem(
                Trouble.ATTENTION, ADDRESS_POOLS.kind, "", name, reason, f"pool {name}: {use}: add to spec.addresses"
            )


#: From this part of a pool on, its use needs attention.
_ALMOST_FULL = 0.8


def of_zones(zones: Iterable[DNSZone]) -> Iterator[Problem]:
    """Say which zones cannot be written, or are written to on paper only."""
    return _first_findings("zone", ((zone, zone.status.conditions) for zone in zones), DNS_ZONES.kind)


def _first_findings(
    fault: str, objects: Iterable[tuple[KubeObject, list[WireCondition] | None]], kind: str
) -> Iterator[Problem]:
    """Yield the first finding of each cluster-scoped object, by name."""
    for obj, conditions in sorted(objects, key=lambda each: each[0].metadata.name):
        name = obj.metadata.name
        for finding in findings_of(conditions)[:1]:
            why = finding.message or finding.reason
            yield Problem(Trouble.ATTENTION, kind, "", name, finding.reason, f"{fault} {name}: {why}")


def of_names(hostnames: Iterable[Hostname]) -> Iterator[Problem]:
    """Say which names are not published by the zone that holds them."""
    for obj in sorted(hostnames, key=lambda obj: obj.spec.host):
        for finding in findings_of(obj.status.conditions if obj.status.zone else ())[:1]:
            sentence = f"name {obj.spec.host} in zone {obj.status.zone}: {finding.message or finding.reason}"
            yield Problem(Trouble.ATTENTION, HOSTNAMES.kind, *obj.key, finding.reason, sentence)


def of_certificates(certificates: Iterable[ManagedCertificate], now: datetime) -> Iterator[Problem]:
    """Say which certificates have ended, end soon though they should have been renewed, or could not be had."""
    for row in ending(certificates, now):
        hosts = ", ".join(row.hosts)
        if row.ends is None:
            reason, fault = "NotIssued", f"there is no certificate for {hosts} yet"
        elif row.ends <= now:
            reason, fault = "Ended", f"the certificate for {hosts} has ended at {row.ends:%Y-%m-%d %H:%M} UTC"
        else:
            reason, fault = "EndsSoon", f"the certificate for {hosts} ends at {row.ends:%Y-%m-%d %H:%M} UTC"
        trouble = Trouble.NOT_SERVING if reason == "Ended" else Trouble.ATTENTION
        yield Problem(trouble, MANAGED_CERTIFICATES.kind, row.namespace, row.name, reason, f"{fault}: {row.why}")
