"""The status of a Hostname: its zone, and how many of its records the authoritative server answers."""

from __future__ import annotations

import msgspec

from fairlead.api.conditions import is_true
from fairlead.api.hostname import Hostname, HostnameStatus
from fairlead.api.meta import WireCondition
from fairlead.hub.intents.hostname.objects import HostnameObjects
from fairlead.hub.intents.intent import IntentContext
from fairlead.hub.intents.status_rules import StatusRules
from fairlead.model.condition import ConditionType
from fairlead.model.observed import Observed
from fairlead.translate.view import Translation


class HostnameStatusRules(StatusRules[Hostname, Translation]):
    """The rules for the status of Hostnames; certificate and waiting are written by who knows of them."""

    needs_address = False
    needs_all_targets = True
    #: Most names are published within that time; then their first status is their last.
    first_s = 5.0
    counts = (*StatusRules.counts, "records")
    owned_elsewhere = (*StatusRules.owned_elsewhere, "accepted", "certificate", "waiting")

    def __init__(self, context: IntentContext, *, objects: HostnameObjects) -> None:
        super().__init__(cluster=context.cluster, events=context.events, resource=objects.resource)
        self._objects = objects

    def compose(
        self, obj: Hostname, translation: Translation, conditions: list[WireCondition], observed: Observed | None
    ) -> HostnameStatus:
        """Return the status with the zone and its records: answered of all."""
        status: HostnameStatus = super().compose(obj, translation, conditions, observed)
        zone, there = self._objects.zone_of(obj), self._objects.recorded_zone_of(obj)
        if there is not None and not is_true(conditions, ConditionType.PROGRAMMED):
            zone = there  # until it has moved
        health = observed.health if observed is not None else None
        records = f"{health.healthy if health is not None else 0}/{translation.targets or 0}"
        return msgspec.structs.replace(
            status,
            zone=zone.metadata.name if zone is not None else obj.status.zone,
            records=records if translation.targets else obj.status.records,
        )

    def programmed(self, obj: Hostname, status: HostnameStatus) -> str:
        """Return what is published."""
        return f"{obj.spec.host} is published in zone {status.zone}, records {status.records}"
