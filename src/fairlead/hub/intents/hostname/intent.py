"""Hostname as an intent: the records of one name are the targets of a load balancer whose provider is a DNS server.

view       the object, the DNSZone with the longest suffix of its host
record     the finalizer, and the accepted spec; a name that moves to a zone at another kind of server stays in the
           former zone until the new one answers all of it. Between zones of one kind its provider moves it.
"""

from __future__ import annotations

from collections.abc import Sequence

from fairlead.api.hostname import Hostname
from fairlead.api.intent import Allocation
from fairlead.hub.intents.accepted_status import AcceptedStatus
from fairlead.hub.intents.hostname.moving import moving
from fairlead.hub.intents.hostname.objects import HostnameObjects
from fairlead.hub.intents.hostname.status import HostnameStatusRules
from fairlead.hub.intents.hostname.zones import ZoneController
from fairlead.hub.intents.intent import Controller, Intent, IntentContext, Recorded
from fairlead.hub.providers.migration import Placement
from fairlead.model.keys import LoadBalancerKey
from fairlead.translate.hostname import HostnameView, translate_hostname
from fairlead.translate.protection import is_leaving
from fairlead.translate.view import Translation


class HostnameIntent(Intent[HostnameView, Translation]):
    """Hostnames with their DNSZones."""

    def __init__(self, context: IntentContext) -> None:
        objects = HostnameObjects(context.cluster, context.inventory)
        super().__init__(context, objects=objects, rules=HostnameStatusRules(context, objects=objects))
        self._names = objects
        self._context = context
        self._accepted = AcceptedStatus(context.cluster, objects.resource, context.leading)
        self._zones = ZoneController(context, objects)

    def watch(self) -> None:
        """Subscribe to zones; a provider that a zone names is opened."""
        self._names.watch(self._context.providers.open)
        self._zones.watch()

    def lead(self) -> None:
        """Compare the status of every zone."""
        self._zones.lead()

    def view(self, key: LoadBalancerKey) -> HostnameView | None:
        """Return the view of ``key``; None when its object does not exist or is being deleted."""
        obj: Hostname | None = self.objects.get(key)
        if obj is None:
            return None
        zone = self._names.zone_of(obj)
        held = zone is not None and zone.spec.dry_run and obj.status.accepted is not None
        if is_leaving(obj) and not held:
            return None
        providers, unreadable = self._context.providers, self._names.unreadable_zones()
        return HostnameView(
            key=key,
            load_balancer=obj,
            zone=zone,
            providers=providers.capabilities,
            zones=tuple(sorted({each.spec.zone for each in self._names.zones.values()})),
            provider_problems=providers.problems,
            stale=self._context.inventory.problem_for(key) or unreadable,
            unreadable=unreadable,
        )

    def translate(self, view: HostnameView) -> Translation:
        """Return what ``view`` comes to."""
        return translate_hostname(view)

    async def record(self, view: HostnameView, translation: Translation) -> Recorded:
        """Record the finalizer and the accepted spec, then have the records placed."""
        desired, obj = translation.desired, view.load_balancer
        if desired is None:
            return Recorded(translation=translation)
        if (preparing := moving(view, translation, self._names, self._context.providers)) is not None:
            return preparing
        if not desired.dry_run:
            await self._accepted.accept(obj, translation, Allocation())
            for provider in self._context.migration.released(view.key, obj, translation.provider):
                await self._accepted.forget_frontend(obj, provider)
        return Recorded(translation=translation, placement=Placement(translation))

    def provider_names(self) -> frozenset[str]:
        """Return the providers that DNSZones name."""
        return frozenset(zone.spec.provider for zone in self._names.zones.values())

    def controllers(self) -> Sequence[Controller]:
        """Return the controller of the zones' status."""
        return (Controller("dnszone", self._zones.queue, self._zones.reconcile),)
