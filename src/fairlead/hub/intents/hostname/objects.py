"""The Hostnames and DNSZones of a hub, and the keys that changes of zones concern.

In: the inventory. Out: typed objects, and wake-ups. A DNSZone wakes the names below it, and no other.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.api.dnszone import DNS_ZONES, DNSZone
from fairlead.api.hostname import HOSTNAMES, Hostname
from fairlead.hub.inventory import IntentObjects, Inventory, first_broken, only_status_changed
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

    def watch(self, opened: Callable[[str], bool]) -> None:
        """Wake names when their zone changes; ``opened`` is called with the provider that a zone names."""

        def changed(old: DNSZone | None, new: DNSZone | None) -> None:
            zone = new or old
            if zone is None or (old and new and only_status_changed(old, new)):
                return
            if new is not None:
                opened(new.spec.provider)
            self._inventory.wake(self.keys_by_index("suffix", zone.spec.zone), f"DNSZone {zone.metadata.name} changed")

        self.zones.on_change(changed)

    def zone_of(self, obj: Hostname) -> DNSZone | None:
        """Return the zone of a name: the one that has its records, else the one with the longest suffix."""
        zone = self.zones.get("", obj.status.zone) if obj.status.zone else None
        if zone is not None and obj.status.accepted is not None and zone.spec.zone in suffixes(obj.spec.host):
            return zone
        return longest_suffix(obj.spec.host, (each for each in self.zones.values() if not each.deleting))

    def unreadable_zones(self) -> str:
        """Return which DNSZone cannot be decoded, empty when there is none."""
        return first_broken(DNS_ZONES.kind, self.zones, sorted(self.zones.broken))


def suffixes(host: str) -> list[str]:
    """Return ``host`` and every name above it."""
    labels = host.split(".")
    return [".".join(labels[at:]) for at in range(len(labels))]
