"""The name and spec of the Hostname object for a host that has an owner.

    addresses   those of all load balancers of the owner that take the name
    kept        what is there, when one of these load balancers has no address for the moment
    cname       the host name of a load balancer that has no IP address at all

In: a decision, what is recorded, addresses. Out: the spec, the name of the object. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Collection

import msgspec

from fairlead.api.hostname import Hostname, HostnameOwner, HostnameSpec
from fairlead.api.intent import IntentStatus
from fairlead.api.meta import JSONObject
from fairlead.api.names import short_hash
from fairlead.hub.names.claims import NameClaimant
from fairlead.hub.names.ownership import NOBODYS, NameDecision
from fairlead.model.keys import LoadBalancerKey

#: More addresses than that are no answer that fits into one packet.
MAX_ADDRESSES = 64
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_NAME_LIMIT = 253


def object_name(host: str) -> str:
    """Name the Hostname of ``host``: the host itself where that can be the name of an object.

    Else its first label is a digest of 64 characters, which is longer than any label of a host.
    """
    if _OBJECT_NAME.fullmatch(host):
        return host
    rest = host.partition(".")[2]
    return f"{short_hash(host, size_bytes=32)}.{rest}"[:_NAME_LIMIT].rstrip(".-") if rest else short_hash(
        host, size_bytes=32
    )  # fmt: skip


def is_of_claims(hostname: Hostname) -> bool:
    """Return whether a Hostname was written for a claim: others, such as those of operators, are never changed."""
    return bool(hostname.spec.owner.load_balancer)


def space_of(hostname: Hostname) -> str:
    """Return the namespace of the member that owns a Hostname; ``NOBODYS`` for one that is no member's."""
    parts = hostname.spec.owner.load_balancer.split("/")
    return parts[1] if len(parts) == 3 else NOBODYS


def hostname_spec(
    host: str,
    owner: NameClaimant,
    decision: NameDecision,
    recorded: HostnameSpec | None,
    addresses: LoadBalancerAddresses,
) -> HostnameSpec:
    """Return the spec of the Hostname of ``host``."""
    keys = decision.load_balancers
    shown = [each for key in keys for each in addresses.of(key)]
    numeric = sorted({each for each in shown if _is_numeric(each)})
    named = next((each for each in shown if not _is_numeric(each)), "")
    if recorded is not None and recorded.owner.load_balancer in map(str, keys) and not all(map(addresses.of, keys)):
        # An address that is missing for a moment has not gone, unless others have it by now.
        numeric = sorted({*numeric, *(each for each in recorded.addresses if not addresses.is_of_others(each, keys))})
        named = named or recorded.cname
    return HostnameSpec(
        host=host,
        owner=_owner(owner),
        addresses=numeric[:MAX_ADDRESSES],
        cname="" if numeric else named,
        generated=owner.generated,
    )


def hostname_body(spec: HostnameSpec) -> JSONObject:
    """Return what is applied of ``spec``: only what claims decide, so that others may add TXT records and a TTL."""
    body: JSONObject = {"host": spec.host, "owner": msgspec.to_builtins(spec.owner)}
    if spec.addresses:
        body["addresses"] = spec.addresses
    if spec.cname:
        body["cname"] = spec.cname
    if spec.generated:
        body["generated"] = True
    return body


def same_spec(spec: HostnameSpec, there: HostnameSpec) -> bool:
    """Return whether ``there`` has what ``spec`` asks for; other fields are those of other writers."""
    return (spec.host, spec.owner, sorted(spec.addresses), spec.cname, spec.generated) == (
        there.host,
        there.owner,
        sorted(there.addresses),
        there.cname,
        there.generated,
    )


def _owner(owner: NameClaimant) -> HostnameOwner:
    return HostnameOwner(
        member=owner.member,
        kind=owner.kind,
        namespace=owner.namespace,
        name=owner.name,
        uid=owner.uid,
        load_balancer=str(owner.load_balancer),
    )


def _is_numeric(text: str) -> bool:
    return ":" in text or text.replace(".", "").isdecimal()


class LoadBalancerAddresses:
    """The addresses of all load balancers of a hub: IP addresses, and host names of those that have no IP address."""

    def __init__(self) -> None:
        self._known: dict[LoadBalancerKey, tuple[str, ...]] = {}
        self._holders: dict[str, set[LoadBalancerKey]] = {}

    def put(self, key: LoadBalancerKey, status: IntentStatus | None) -> bool:
        """Take over what the status of ``key`` shows, None when it is gone; return whether that is something else."""
        before = self._known.get(key, ())
        now = () if status is None else _shown(status) or before
        if now == before:
            return False
        for each in before:
            self._holders[each].discard(key)
            if not self._holders[each]:
                del self._holders[each]
        for each in now:
            self._holders.setdefault(each, set()).add(key)
        self._known[key] = now
        if not now:
            del self._known[key]
        return True

    def of(self, key: LoadBalancerKey) -> tuple[str, ...]:
        """Return the addresses of one load balancer, none when it never had any."""
        return self._known.get(key, ())

    def is_of_others(self, address: str, keys: Collection[LoadBalancerKey]) -> bool:
        """Return whether a load balancer that is not among ``keys`` has ``address``, and none of ``keys`` has."""
        holders = self._holders.get(address, set())
        return bool(holders) and not holders & set(keys)


def _shown(status: IntentStatus) -> tuple[str, ...]:
    entries = status.load_balancer.ingress or ()
    return tuple(dict.fromkeys(each.address for each in entries if each.address))
