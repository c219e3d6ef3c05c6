"""What a DNSZone's conditions say; caches are filled by hand."""

from __future__ import annotations

import msgspec
from hub_parts import intent_context

from fairlead.api.dnszone import DNSZone, DNSZoneSpec
from fairlead.api.meta import ObjectMeta
from fairlead.hub.intents.hostname.objects import HostnameObjects, suffixes
from fairlead.hub.intents.hostname.zones import ZoneController
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import Capabilities


def zone(name: str = "a", provider: str = "rfc2136", created: str = "2030-01-01") -> DNSZone:
    meta = ObjectMeta(name=name, creation_timestamp=created)
    return DNSZone(metadata=meta, spec=DNSZoneSpec(zone="example.test", provider=provider))


def controller() -> ZoneController:
    capabilities = {"rfc2136": Capabilities(publishes_names=True), "haproxy": Capabilities()}
    context = intent_context(pool=None, capabilities=capabilities)
    return ZoneController(context, HostnameObjects(context.cluster, context.inventory))


def test_a_zone_is_accepted_when_its_provider_publishes_names():
    zones = controller()
    assert zones._accepted(zone()).reason is ConditionReason.ACCEPTED
    refused = zones._accepted(zone(provider="haproxy"))
    assert (refused.status, refused.reason) == (False, ConditionReason.NO_SUCH_PROVIDER)
    assert "runs no provider 'nsd'" in zones._accepted(zone(provider="nsd")).message


def test_of_two_of_the_same_zone_the_younger_is_refused():
    zones, old = controller(), zone("b")
    young = msgspec.structs.replace(zone("a", created="2030-01-02"))
    for each in (old, young):
        zones._objects.zones._store.put(each)
    assert zones._accepted(old).status is True
    assert "DNSZone b is older and has example.test" in zones._accepted(young).message


def test_the_suffixes_of_a_host_are_the_host_and_every_name_above_it():
    assert suffixes("a.b.test") == ["a.b.test", "b.test", "test"]
