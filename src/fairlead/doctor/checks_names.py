"""Checks of AddressPools, DNSZones and Hostnames: addresses can be given, and names are published.

In: facts about the hub. Out: findings about AddressPools, DNSZones, Hostnames, and names that members asked for.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.dnszone import DNS_ZONES
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.load_balancers import LOAD_BALANCER_KINDS
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_NODES, LABEL_NODES_IPV6
from fairlead.doctor.facts import Facts
from fairlead.doctor.finding import Finding, error, warning
from fairlead.doctor.reading import (
    condition,
    is_false,
    items,
    label,
    mapping,
    message_of,
    meta,
    name_of,
    path_of,
    spec,
    status,
)
from fairlead.errors import BadConfiguration
from fairlead.model.condition import ConditionReason
from fairlead.model.families import canonical_address
from fairlead.model.in_words import listed
from fairlead.translate.address_ranges import AddressRanges

#: Kinds of which an object may ask for names.
_ASKING = (*LOAD_BALANCER_KINDS, LOAD_BALANCER_ROUTES)
#: Reasons that are of the zone's server, and so of every name in it.
_OF_THE_SERVER = frozenset({ConditionReason.PROVIDER_FAILED.value, ConditionReason.QUARANTINED.value})


def pools_not_usable(facts: Facts) -> Iterator[Finding]:
    """Name pools that no address is given from: they are invalid, or overlap an older one."""
    for pool in facts.hub.list(ADDRESS_POOLS) if facts.hub else ():
        if is_false(pool, "Accepted"):
            yield error(
                path_of("AddressPool", pool), message_of(pool, "Accepted"), f"kubectl edit addresspool {name_of(pool)}"
            )


def pools_exhausted(facts: Facts) -> Iterator[Finding]:
    """Name pools without a free address of a family: what asks for the next one waits."""
    for pool in facts.hub.list(ADDRESS_POOLS) if facts.hub else ():
        counts = status(pool)
        empty = [family for family in ("IPv4", "IPv6") if counts.get(f"free{family}") == 0]
        if empty and not is_false(pool, "Accepted"):
            kept = f", {counts['reserved']} of them reserved" if counts.get("reserved") else ""
            usage = f"{counts.get('used', 0)} of {counts.get('size', 0)} are given"
            fault = f"it has no free {' or '.join(empty)} address: {usage}"
            fix = (
                f"kubectl edit addresspool {name_of(pool)}   add ranges to spec.addresses, or make another AddressPool"
            )
            yield warning(path_of("AddressPool", pool), f"{fault}{kept}", fix)


def pools_with_nodes(facts: Facts) -> Iterator[Finding]:
    """Name pools with an address of a member's node: whose load balancer gets it takes ports from that node."""
    if facts.hub is None:
        return
    nodes = {
        canonical_address(str(address)): str(meta(each, "namespace"))
        for each in facts.hub.list(ENDPOINT_SLICES)
        if label(each, LABEL_NODES) is not None or label(each, LABEL_NODES_IPV6) is not None
        for endpoint in items(each.get("endpoints"))
        for address in items(endpoint.get("addresses"))
    }
    for pool in facts.hub.list(ADDRESS_POOLS):
        avoid, addresses = (",".join(map(str, items(spec(pool).get(each)))) for each in ("avoid", "addresses"))
        try:
            avoided = AddressRanges.whole(avoid, field="spec.avoid")
            ranges = AddressRanges.parse(addresses, field="spec.addresses", avoid=avoided)
        except BadConfiguration:
            continue  # its condition Accepted says so, which is a check of its own
        inside = {address: space for address, space in nodes.items() if address in ranges}
        if inside:
            address, space = min(inside.items())
            more = f" and {len(inside) - 1} more" if inside.keys() - {address} else ""
            yield warning(
                path_of("AddressPool", pool),
                f"{address}{more} is of a node, of the member in namespace {space}: a load balancer that gets it takes "
                "the ports that it opens from that node, as backends of others",
                f"kubectl edit addresspool {name_of(pool)}   add it to spec.avoid",
            )


def zones_not_usable(facts: Facts) -> Iterator[Finding]:
    """Name zones that cannot be written, and those of which no name can be checked as they name no server."""
    for zone in facts.hub.list(DNS_ZONES) if facts.hub else ():
        path, edit = path_of("DNSZone", zone), f"kubectl edit dnszone {name_of(zone)}"
        if is_false(zone, "Accepted"):
            yield error(path, message_of(zone, "Accepted"), edit)
        elif not mapping(spec(zone).get("parameters")).get("server"):
            fault = "it names no server, so nothing can ask whether its names resolve"
            yield warning(path, fault, f"{edit}   set spec.parameters.server to HOST:PORT of its DNS server")


def zones_not_answering(facts: Facts) -> Iterator[Finding]:
    """Name zones whose server does not take changes: once for all names in it."""
    by_zone: dict[str, list[JSONObject]] = defaultdict(list)
    for obj in facts.hub.list(HOSTNAMES) if facts.hub else ():
        if is_false(obj, "Programmed") and condition(obj, "Programmed").get("reason") in _OF_THE_SERVER:
            by_zone[str(status(obj).get("zone") or "")].append(obj)
    for zone, names in sorted(by_zone.items()):
        hosts = listed(sorted(str(spec(each).get("host")) for each in names), 3)
        fault = f"its server does not take the records of {hosts}: {message_of(names[0], 'Programmed')}"
        yield error(
            f"DNSZone/{zone}", fault, f"kubectl describe dnszone {zone}   is spec.parameters right, and the server up?"
        )


def names_not_published(facts: Facts) -> Iterator[Finding]:
    """Name Hostnames that are refused, or not published for another reason than the server of their zone."""
    for obj in facts.hub.list(HOSTNAMES) if facts.hub else ():
        kind = next((each for each in ("Accepted", "ResolvedRefs", "Programmed") if is_false(obj, each)), "")
        reason = condition(obj, kind).get("reason")
        # A name that no zone holds may be kept by hand.
        if not kind or reason in (*_OF_THE_SERVER, ConditionReason.NO_SUCH_ZONE.value):
            continue
        path = path_of("Hostname", obj)
        ref = path_of("hostname", obj)
        yield error(
            path, f"{spec(obj).get('host')} is not published: {message_of(obj, kind)}", f"fairlead explain {ref}"
        )


def names_refused(facts: Facts) -> Iterator[Finding]:
    """Name objects that ask for a name that another one has, or that is in a domain of others."""
    for resource in _ASKING:
        for obj in facts.hub.list(resource) if facts.hub else ():
            conditions = items(mapping(status(obj).get("names")).get("conditions"))
            refused = next((each for each in conditions if each.get("type") == "HostnamesAccepted"), JSONObject())
            if refused.get("status") == "False":
                fix = "fairlead names   lists who has each name; ask for another one, or delete the Hostname of that"
                yield warning(path_of(resource.kind, obj), str(refused.get("message") or refused.get("reason")), fix)
