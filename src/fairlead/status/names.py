"""Problems of names, certificates and addresses, one ``Problem`` for each, in the order of their objects.

In: AddressPools, DNSZones, the Hostnames that they hold, ManagedCertificates, the time. Out: problems. A name that no
zone holds is none: its records may be kept by hand. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from datetime import datetime

from fairlead.api.addresspool import ADDRESS_POOLS, COUNTED, AddressPool
from fairlead.api.dnszone import DNS_ZONES, DNSZone
from fairlead.api.hostname import HOSTNAMES, Hostname
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES, ManagedCertificate
from fairlead.api.meta import KubeObject, WireCondition
from fairlead.errors import BadConfiguration
from fairlead.model.families import family_of
from fairlead.status.conditions import findings_of
from fairlead.status.rows import PoolRow, Problem, Trouble
from fairlead.translate.address_pools import OWN_POOL
from fairlead.translate.address_ranges import AddressRanges
from fairlead.translate.certificates import ending


def pool_rows(pools: Iterable[AddressPool], own: str, given: Iterable[str]) -> list[PoolRow]:
    """Return the use of ``--address-pool`` (``own``, empty for none) and of each AddressPool.

    ``given`` are the addresses of all load balancers.
    """
    rows = [pool_row(pool) for pool in sorted(pools, key=lambda pool: pool.metadata.name)]
    if not own:
        return rows
    try:
        ranges = AddressRanges.parse(own)
    except BadConfiguration:
        return rows  # written by a hub of a version that has other ranges
    used = Counter(family_of(address) for address in set(given) if address in ranges)
    fullest = max(used[family] / ranges.of(family).size for family in ranges.families)
    size, note = min(ranges.size, COUNTED), _note(fullest)
    return [PoolRow(name=OWN_POOL, addresses=own, size=size, used=used.total(), note=note), *rows]


def pool_row(pool: AddressPool) -> PoolRow:
    """Return the use of one AddressPool, as its hub counted it."""
    status = pool.status
    taken = status.used + status.reserved
    exhausted = bool(status.size) and 0 in (status.free, status.free_ipv4, status.free_ipv6)
    return PoolRow(
        name=pool.metadata.name,
        addresses=", ".join(pool.spec.addresses),
        size=status.size,
        used=status.used,
        reserved=status.reserved,
        note=_note(1.0 if exhausted else taken / status.size if status.size else 0.0),
    )


def _note(part: float) -> str:
    return "Full" if part >= 1 else "AlmostFull" if part >= _ALMOST_FULL else ""


#: From this part of a pool on, ``fairlead status`` and the page point at it.
_ALMOST_FULL = 0.8


def of_pools(pools: Iterable[AddressPool], rows: Iterable[PoolRow], *, waiting: bool) -> Iterator[Problem]:
    """Yield the pools that give no addresses: invalid ones, and full ones while a load balancer waits for an address.

    A pool may be full on purpose: as long as nothing waits, that is no problem.
    """
    yield from _first_findings("pool", ((pool, pool.status.conditions) for pool in pools), ADDRESS_POOLS.kind)
    for row in rows:
        if waiting and row.note == "Full":
            step = "start the hub with a larger one" if row.name == OWN_POOL else "add to spec.addresses"
            sentence = f"pool {row.name}: {pool_use(row)}, and a load balancer waits for one; {step}"
            yield Problem(Trouble.ATTENTION, ADDRESS_POOLS.kind, "", row.name, "AddressPoolExhausted", sentence)


def pool_use(row: PoolRow) -> str:
    """Return how many addresses of a pool are used, in words."""
    reserved = f" and {row.reserved} reserved" if row.reserved else ""
    return f"{row.used} of {row.size} addresses are used{reserved}"


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
