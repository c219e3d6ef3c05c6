"""A Hostname becomes a load balancer whose targets are the records of the name, at the server of its DNSZone.

    spec.addresses   backends A and AAAA     both are there while it has neither, so that the last record is guarded;
                                             one family may go while the other resolves
    spec.cname       backend CNAME
    spec.texts       backend TXT

In: a ``HostnameView``. Out: ``Decision``. A refused spec keeps the records of the last accepted one.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping

import msgspec

from fairlead.api.hostname import DNSZone, Hostname, HostnameSpec, is_within
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.model.condition import Condition, ConditionReason, ConditionType
from fairlead.model.contract import Capabilities
from fairlead.model.desired import DesiredLoadBalancer, FrontendSpec, GuardPolicy, Owner, Target, Targets
from fairlead.model.keys import RECORD_PORT, RECORD_UNHEALTHY, ListenerKey, LoadBalancerKey, TargetKey, backend_key
from fairlead.translate.view import (
    Decision,
    build_accepted,
    build_paused,
    build_unprogrammed,
    refused,
    repair_asked,
    unresolved,
)

#: A mark also has a name: that of the record after a label of at most 15 characters.
LONGEST_HOST = 253 - 15
#: Maximum TTL of a name that other hubs share, in seconds: clients notice a withdrawn address after it.
SHARED_TTL_S = 30
_LONGEST_LABEL = 63


class HostnameView(msgspec.Struct, frozen=True):
    """One Hostname and its zone; None without a zone.

    ``zones`` are those there are, ordered, for the message. ``providers`` maps the provider names that this hub runs to
    their capabilities, ``provider_problems`` those that failed to start to the reason. ``stale`` is why the view is
    known to be incomplete, else empty; ``unreadable`` is a sentence about a zone that cannot be read.
    """

    key: LoadBalancerKey
    load_balancer: Hostname
    zone: DNSZone | None
    providers: Mapping[str, Capabilities]
    zones: tuple[str, ...] = ()
    provider_problems: Mapping[str, str] = {}
    stale: str = ""
    unreadable: str = ""
    #: As in MemberView.
    due_s: float | None = None


def decide_hostname(view: HostnameView) -> Decision:
    """Return the records for ``view``, or those of the last accepted version."""
    refusal = refuse(view)
    obj, zone = view.load_balancer, view.zone
    accepted = obj.status.accepted if refusal is not None else obj.spec
    if accepted is None or zone is None or zone.spec.provider not in view.providers:
        conditions = (refusal, build_unprogrammed(refusal)) if refusal is not None else ()
        return Decision(None, conditions, provider=zone.spec.provider if zone is not None else "")
    paused = build_paused(obj, zone)
    dry_run = _dry_run(zone)
    targets = records(accepted, accepted.ttl_seconds or zone_ttl(zone), shared=bool(zone.spec.peer_lease_seconds))
    desired = DesiredLoadBalancer(
        spec=frontend_of(view, zone),
        targets=targets,
        guard=GuardPolicy(zone.spec.guard.max_removal_percent, zone.spec.guard.min_backends),
        stale=view.stale,
        paused=paused is not None,
        dry_run=dry_run.message if dry_run is not None else "",
        repair=repair_asked(obj),
    )
    return Decision(
        desired,
        tuple(filter(None, (build_accepted(refusal), _unreadable(view), dry_run or paused))),
        targets=str(sum(map(len, targets.values()))),
        provider=zone.spec.provider,
        serving_last_accepted=refusal is not None,
    )


def _unreadable(view: HostnameView) -> Condition | None:
    if not view.unreadable:
        return None
    text = f"{view.unreadable}; correct or delete it: until then no record is removed, as it may hold this name"
    return unresolved(ConditionReason.INVALID, text)


def frontend_of(view: HostnameView, zone: DNSZone) -> FrontendSpec:
    """Return the frontend of the records: provider and parameters of the zone."""
    meta = view.load_balancer.metadata
    given = {"zone": zone.spec.zone, "host": view.load_balancer.spec.host, "ownerId": zone.spec.owner_id}
    if zone.spec.peer_lease_seconds:
        given["peerLeaseSeconds"] = str(zone.spec.peer_lease_seconds)
    return FrontendSpec(
        key=view.key,
        group=view.key.namespace,
        listeners=(),
        health_check=None,
        parameters=dict(sorted({**zone.spec.parameters, **given}.items())),
        owner=Owner("", view.key.kind, meta.namespace, meta.name, meta.uid),
    )


def zone_ttl(zone: DNSZone) -> int:
    """Return the TTL (seconds) of the records of a zone."""
    ttl = zone.spec.ttl_seconds
    return min(ttl, SHARED_TTL_S) if zone.spec.peer_lease_seconds else ttl


def records(spec: HostnameSpec, ttl: int, *, shared: bool = False) -> dict[ListenerKey, Targets]:
    """Return the records of ``spec`` by type, each with its TTL in seconds.

    ``shared``: other hubs may have addresses of the name, so that unhealthy ones can be withdrawn.
    """
    by_type: dict[str, list[str]] = (
        {"A": [], "AAAA": []} if not spec.cname else {"CNAME": [spec.cname.lower().rstrip(".")]}
    )
    for address in spec.addresses or ():
        parsed = ipaddress.ip_address(address)
        by_type["A" if parsed.version == 4 else "AAAA"].append(str(parsed))
    if spec.addresses:
        by_type = {type_: values for type_, values in by_type.items() if values}
    if spec.texts:
        by_type["TXT"] = list(spec.texts)
    unhealthy = frozenset(map(_canonical, spec.unhealthy_addresses or ())) if shared else frozenset[str]()
    return {backend_key(type_): _targets(values, ttl, unhealthy) for type_, values in by_type.items()}


def longest_suffix(host: str, zones: Iterable[DNSZone]) -> DNSZone | None:
    """Return the zone with the longest suffix of ``host``; the older one of two DNSZones for the same zone."""
    holding = [zone for zone in zones if is_within(host, zone.spec.zone)]
    return min(holding, key=lambda zone: (-len(zone.spec.zone), zone.age_order), default=None)


def refuse(view: HostnameView) -> Condition | None:
    """Return condition Accepted if the spec cannot be published (Unknown if nothing requests it); otherwise None."""
    zone, spec = view.zone, view.load_balancer.spec
    if zone is None:
        if view.unreadable:
            text = f"spec.host: no DNSZone that can be read holds {spec.host}; {view.unreadable}; correct that"
            return refused(ConditionReason.NO_SUCH_ZONE, text)
        there = f"there are {', '.join(view.zones[:5])}" if view.zones else "there is none yet"
        text = f"spec.host: no DNSZone holds {spec.host} ({there}); create a DNSZone for a suffix of it"
        if is_unasked(spec, view.zones):
            text = "there is no DNSZone, so its records are not Fairlead's; to have them written, create a DNSZone"
            return Condition(ConditionType.ACCEPTED, None, ConditionReason.NO_SUCH_ZONE, text)
        return refused(ConditionReason.NO_SUCH_ZONE, text)
    provider = zone.spec.provider
    capabilities = view.providers.get(provider)
    if capabilities is None:
        problem = view.provider_problems.get(provider) or f"this hub does not run provider {provider!r}; install it"
        return refused(ConditionReason.NO_SUCH_PROVIDER, f"DNSZone {zone.metadata.name}: {problem}")
    if not capabilities.publishes_names:
        text = (
            f"DNSZone {zone.metadata.name}: provider {provider!r} publishes no names; create one with another provider"
        )
        return refused(ConditionReason.NO_SUCH_PROVIDER, text)
    if spec.texts and not capabilities.publishes_texts:
        text = (
            f"spec.texts: DNSZone {zone.metadata.name} is written by provider {provider!r}, which has no TXT records; "
            "have the zone written by another provider, such as external-dns with DNSEndpoints"
        )
        return refused(ConditionReason.INVALID, text)
    problem = _wrong_name("spec.host", spec.host) or _wrong_cname(spec, zone) or _wrong_address(spec)
    return refused(ConditionReason.INVALID, problem) if problem else None


def is_unasked(spec: HostnameSpec, zones: Collection[str]) -> bool:
    """Return whether a name is only the host of a route or listener, at a hub without any DNSZone.

    Names that an annotation or an operator requests, generated names and challenges count as requested.
    """
    of_requests = spec.owner.load_balancer.startswith(f"{HTTP_LOAD_BALANCERS.kind}/")
    return of_requests and not zones and not spec.generated and not spec.texts


def _wrong_name(field: str, name: str) -> str:
    if not name.isascii():
        return f"{field}: {name[:60]} is not ASCII; write an internationalized name as its A-labels (xn--…)"
    if len(name) > LONGEST_HOST:
        return f"{field}: it has {len(name)} characters, and at most {LONGEST_HOST} leave room for the ownership marks"
    if any(not 0 < len(label) <= _LONGEST_LABEL for label in name.rstrip(".").split(".")):
        return (
            f"{field}: a label of {name[:60]} is empty or longer than {_LONGEST_LABEL} characters; choose another name"
        )
    return ""


def _wrong_cname(spec: HostnameSpec, zone: DNSZone) -> str:
    if not spec.cname:
        return ""
    if spec.host == zone.spec.zone:
        return (
            f"spec.cname: {spec.host} is the apex of its zone, and a CNAME record is not allowed there. "
            "Set spec.addresses, or use a name below the apex"
        )
    if spec.addresses or spec.texts:
        return "spec.cname: a name with a CNAME record has no other record; set either cname or addresses and texts"
    if spec.cname.lower().rstrip(".") == spec.host:
        return "spec.cname: it is the name itself; name where it should point"
    return _wrong_name("spec.cname", spec.cname)


def _wrong_address(spec: HostnameSpec) -> str:
    for field, address in (
        *(("spec.addresses", address) for address in spec.addresses or ()),
        *(("spec.unhealthyAddresses", address) for address in spec.unhealthy_addresses or ()),
    ):
        try:
            ipaddress.ip_address(address)
        except ValueError:
            return f"{field}: {address[:45]!r} is not an IP address; set spec.cname to point to a name"
    return ""


def _dry_run(zone: DNSZone) -> Condition | None:
    if not zone.spec.dry_run:
        return None
    name = zone.metadata.name
    text = f"spec.dryRun of DNSZone {name} is set: nothing is written; what would be is shown by: fairlead plan"
    return Condition(ConditionType.PAUSED, True, ConditionReason.DRY_RUN, text)


def _canonical(address: str) -> str:
    return str(ipaddress.ip_address(address))


def _targets(values: Iterable[str], ttl: int, unhealthy: Collection[str]) -> Targets:
    keys = sorted({TargetKey(value, RECORD_PORT) for value in values})
    with_ttl = ("ttl", str(ttl))
    return {
        key: Target(key, parameters=(RECORD_UNHEALTHY, with_ttl) if key.address in unhealthy else (with_ttl,))
        for key in keys
    }
