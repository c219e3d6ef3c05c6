"""The former domains of a Tenant that keep their names, and until when.

    the domain changes                      the former one is kept, also over a restart: it stands in the status
    names in the new one do not all resolve  it is kept
    they do                                  it is kept for spec.keepFormerDomain from then on, 1 h when that is empty
    there is no new one                      the same, from the change on
    spec.keepFormerDomain is 0s              it is kept no longer
    it is the domain again                   it is no former one

In: a Tenant, the domain that it gets, Hostnames, the time. Out: the former domains with their ends. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

import msgspec

from fairlead.api.conditions import is_true
from fairlead.api.durations import seconds_from_duration
from fairlead.api.hostname import Hostname
from fairlead.api.tenant import FormerDomain, Tenant
from fairlead.api.times import parsed_time, wire_time
from fairlead.model.condition import ConditionReason, ConditionType

KEPT = "1h"
#: A hundred years; what an earlier schema admitted may be longer.
_LONGEST_S = 100 * 365 * 86_400.0
#: Of more, those that were left first go first.
_MOST = 4


def former_domains(
    tenant: Tenant, domain: str, hostnames: Iterable[Hostname], now: datetime
) -> tuple[FormerDomain, ...]:
    """Return the former domains of ``tenant``, whose names are made in ``domain`` from now on, oldest first."""
    keep_s = min(seconds_from_duration(tenant.spec.keep_former_domain or KEPT), _LONGEST_S)
    former = {each.domain: each for each in tenant.status.former_domains or ()}
    if tenant.status.domain:
        former.setdefault(tenant.status.domain, FormerDomain(tenant.status.domain))
    former.pop(domain, None)
    if not former or not keep_s:
        return ()
    names = {each.spec.host: each for each in hostnames if each.spec.owner.member == tenant.metadata.name}
    kept: list[FormerDomain] = []
    for each in former.values():
        # A time that cannot be read was not written here; it is computed again.
        until = each.until if parsed_time(each.until) is not None else None
        if until is None and not _missing(each.domain, domain, names):
            until = wire_time(now + timedelta(seconds=keep_s))
        if until is None or now < (parsed_time(until) or now):
            kept.append(msgspec.structs.replace(each, until=until))
    return tuple(kept[-_MOST:])


def _missing(former: str, domain: str, names: Mapping[str, Hostname]) -> bool:
    """Return whether a name that was made in ``former`` has none in ``domain`` yet that resolves.

    One that never had a record, since its load balancer has no address, is not waited for.
    """
    if not domain:
        return False
    labels = [
        host.partition(".")[0]
        for host, obj in names.items()
        if obj.spec.generated and not obj.deleting and host.partition(".")[2] == former and obj.status.records
    ]
    return not all(_resolves(names.get(f"{label}.{domain}")) for label in labels)


def _resolves(obj: Hostname | None) -> bool:
    """Return whether a name is published, as far as it is the hub that publishes it."""
    if obj is None or obj.deleting:
        return False
    if any(each.reason == ConditionReason.NO_SUCH_ZONE for each in obj.status.conditions or ()):
        return True
    # All of no records are published, too.
    return is_true(obj.status.conditions, ConditionType.PROGRAMMED) and bool(obj.status.records)
