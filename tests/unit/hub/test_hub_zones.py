"""What a DNSZone's conditions say; caches are filled by hand."""

from __future__ import annotations

import msgspec
import pytest
from hub_parts import intent_context

from fairlead.api.hostname import DNSZone, DNSZoneSpec, Hostname
from fairlead.api.meta import ObjectMeta
from fairlead.hub.intents.hostname import HostnameObjects, ZoneController, moving, suffixes
from fairlead.hub.providers.registry import Phase
from fairlead.model.condition import ConditionReason
from fairlead.model.contract import Capabilities
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.memory import MemoryCloud, MemoryProvider
from fairlead.sync.plan import Registered
from fairlead.translate.hostname import HostnameView, decide_hostname


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


def hostname(host: str, **status: object) -> Hostname:
    return msgspec.convert({"metadata": {"name": host}, "spec": {"host": host}, "status": status}, Hostname)


def test_a_name_stays_in_its_recorded_zone_until_it_has_moved():
    objects = controller()._objects
    child = msgspec.structs.replace(zone("dev"), spec=DNSZoneSpec(zone="dev.example.test", provider="rfc2136"))
    young = zone("b", created="2029-01-01")
    for each in (zone("a"), young, child):
        objects.zones._store.put(each)
    fresh = hostname("www.dev.example.test")
    assert objects.zone_of(fresh) == child
    assert objects.recorded_zone_of(fresh) is None
    there = hostname("www.dev.example.test", zone="a", accepted={"host": "www.dev.example.test"})
    assert objects.zone_of(there) == child
    assert objects.recorded_zone_of(there) == zone("a")
    # Of zones with the same suffix the one that has its records stays, though another is older.
    same = hostname("www.example.test", zone="a", accepted={"host": "www.example.test"})
    assert objects.zone_of(same) == zone("a")
    assert objects.zone_of(hostname("www.example.test")) == young


@pytest.mark.parametrize(
    ("serving", "dry_run", "answered", "next_"),
    [
        ("old", False, False, True),
        ("old", True, False, False),
        ("old", False, True, None),
        ("rfc2136", False, False, None),
        ("", False, False, None),
    ],
    ids=["preparing", "dry run", "answered", "there already", "new"],
)
def test_the_former_zone_keeps_a_name_until_the_new_kind_of_server_answers_it(serving, dry_run, answered, next_):
    capabilities = {name: Capabilities(publishes_names=True) for name in ("old", "rfc2136")}
    served = {name: MemoryProvider(cloud=MemoryCloud()) for name in capabilities}
    context = intent_context(served=served)
    objects = HostnameObjects(context.cluster, context.inventory)
    former = zone("a", provider="old")
    new = DNSZone(
        metadata=ObjectMeta(name="dev"), spec=DNSZoneSpec(zone="dev.example.test", provider="rfc2136", dry_run=dry_run)
    )
    for each in (former, new):
        objects.zones._store.put(each)
    spec = {"host": "www.dev.example.test", "addresses": ["192.0.2.1"]}
    status = {"zone": "a", "accepted": spec, "provisioned": [{"provider": serving, "serving": True}] if serving else []}
    obj = msgspec.convert({"metadata": {"name": "www"}, "spec": spec, "status": status}, Hostname)
    key = LoadBalancerKey("Hostname", "", "www")
    view = HostnameView(key=key, load_balancer=obj, zone=new, providers=capabilities)
    translation = decide_hostname(view)
    if answered:
        desired = translation.desired
        context.providers["rfc2136"].tracker.restore(
            desired.spec,
            {
                listener: {at: Registered(each) for at, each in targets.items()}
                for listener, targets in desired.targets.items()
            },
            certain=True,
        )
    recorded = moving(view, translation, objects, context.providers)
    if next_ is None:
        assert recorded is None
        return
    assert recorded.placement.phase is Phase.PREPARING
    assert recorded.placement.serving.provider == "old"
    assert (recorded.placement.next is not None) == next_
    assert recorded.waiting_for.startswith("DNSZone a has the records until rfc2136 has them (")
