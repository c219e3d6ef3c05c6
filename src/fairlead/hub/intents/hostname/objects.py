"""The Hostnames and DNSZones of a hub, and the keys that changes of zones concern.

In: the inventory. Out: typed objects, and wake-ups. A DNSZone wakes the names below it, the first and the last one all.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.api.dnszone import DNS_ZONES, DNSZone
from fairlead.api.hostname import HOSTNAMES, Hostname
from fairlead.api.meta import only_status_changed
from fairlead.hub.inventory import IntentObjects, Inventory, first_broken
from fairlead.kube.cache import WatchCache
from fairlead.kube.cluster import Cluster
from fairlead.translate.hostname import longest_suffix


class HostnameObjects(IntentObjects[Hostname]):
    """Names are in no region: the hub that serves all regions serves them, so that each has one writer."""

    def __init__(self, cluster: Cluster, inventory: Inventory) -> None:
        super().__init__(
            WatchCache(
                cluster,
                HOSTNAMES,
                indexes={
                    "namespace": lambda obj: [obj.metadata.namespace],
                    # In no LoadBalancerClass: the zone of a name follows from the name.
                    "class": lambda _obj: [],
                    "suffix": lambda obj: suffixes(obj.spec.host),
                },
            ),
            HOSTNAMES,
            serves=lambda _obj: not inventory.region,
            recorded=lambda obj: (obj.status.accepted, obj.status.zone),
        )
        self._inventory = inventory
        self.zones: WatchCache[DNSZone] = WatchCache(cluster, DNS_ZONES)
        inventory.register(self, {DNS_ZONES.plural: self.zones})
        # Which names an unreadable zone holds is not known.
        inventory.wake_on_readability(DNS_ZONES.kind, self.zones, lambda _zone: map(self.key, self.served()))

    def watch(self, opened: Callable[[str], bool]) -> None:
        """Wake names when their zone changes; ``opened`` is called with the provider that a zone names."""

        def changed(old: DNSZone | None, new: DNSZone | None) -> None:
            zone = new or old
            if zone is None or (old and new and only_status_changed(old, new)):
                return
            if new is not None:
                opened(new.spec.provider)
            # The first zone, and the last one that goes, decide whether names without a zone are a problem.
            only = (old is None or new is None) and sum(1 for _ in self.zones.values()) == (new is not None)
            keys = map(self.key, self.served()) if only else self.keys_by_index("suffix", zone.spec.zone)
            self._inventory.wake(keys, f"DNSZone {zone.metadata.name} changed")

        self.zones.on_change(changed)

    def zone_of(self, obj: Hostname) -> DNSZone | None:
        """Return where its records are to be: the zone with the longest suffix; of equal ones that which has them."""
        there = self.recorded_zone_of(obj)
        best = longest_suffix(obj.spec.host, (each for each in self.zones.values() if not each.deleting))
        if there is None or (best is not None and len(best.spec.zone) > len(there.spec.zone)):
            return best
        return there

    def recorded_zone_of(self, obj: Hostname) -> DNSZone | None:
        """Return the zone that has its records, None when none has, or it has been deleted."""
        zone = self.zones.get("", obj.status.zone) if obj.status.zone and obj.status.accepted is not None else None
        return zone if zone is not None and zone.spec.zone in suffixes(obj.spec.host) else None

    def unreadable_zones(self) -> str:
        """Return which DNSZone cannot be decoded, empty when there is none."""
        return first_broken(DNS_ZONES.kind, self.zones, sorted(self.zones.broken))


def suffixes(host: str) -> list[str]:
    """Return ``host`` and every name above it."""
    labels = host.split(".")
    return [".".join(labels[at:]) for at in range(len(labels))]
