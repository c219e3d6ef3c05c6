"""Every version of every object that a hub writes a status of, as kstatus sees it: never Current too soon."""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Mapping
from typing import Any

import names_world
import pytest
from group_shop import PODS_OF_WEB, Shop
from hub_world import HubWorld, RunningHub

from fairlead.api.addresspool import ADDRESS_POOLS
from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.kinds import all_crds
from fairlead.api.managedcertificate import CERTIFICATE_ISSUERS
from fairlead.ledger.history import FLUSH_S
from fairlead.testing.builders import lb_key
from tests.argocd import OURS, built_in, health
from tests.kstatus import kstatus

ARGOCD = (OURS / "health.lua").read_text()
#: What Argo CD may say of an object in each state.
HEALTH = {"Current": {"Healthy"}, "Failed": {"Degraded"}, "InProgress": {"Progressing", "Degraded", "Suspended"}}

#: Kinds whose objects are records of a program, or have no status.
WITHOUT_CONDITIONS = {"BackendRecord", "LoadBalancerRoute", "NodePool"}
BUCKETS = {
    crd["metadata"]["name"]: crd["spec"]["names"]["kind"]
    for crd in all_crds()
    if crd["spec"]["names"]["kind"] not in WITHOUT_CONDITIONS
}


def is_ready(obj: Mapping[str, Any]) -> bool:
    """Return whether a Ready of True is what makes an object Current."""
    conditions = obj.get("status", {}).get("conditions") or []
    return kstatus(obj) == "Current" and any(condition["type"] == "Ready" for condition in conditions)


class Recorder:
    """Every version of our objects in the order in which the API server stored them."""

    def __init__(self, world: HubWorld) -> None:
        self.world = world
        self.versions: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
        self.too_soon: list[str] = []
        store = world.server._running().store
        put = store.put

        def noted(name: str, obj: dict[str, Any], **options: Any) -> Any:
            if name in BUCKETS:
                self._note(BUCKETS[name], copy.deepcopy(obj))
            return put(name, obj, **options)

        store.put = noted

    def _note(self, kind: str, obj: dict[str, Any]) -> None:
        name = obj["metadata"]["name"]
        self.versions[kind, name].append(obj)
        if kind == "TCPLoadBalancer" and is_ready(obj):
            served = self.world.cloud.load_balancers[lb_key(name)].spec
            ports = {port["port"] for port in obj["spec"]["ports"]}
            if {listener.port for listener in served.listeners} != ports:
                self.too_soon.append(f"generation {obj['metadata']['generation']} of {name}")

    def state(self, kind: str, name: str) -> str:
        return kstatus(self.versions[kind, name][-1])

    def path(self, kind: str, name: str) -> list[str]:
        """Return the states that the object went through, without repetitions."""
        path: list[str] = []
        for obj in self.versions[kind, name]:
            if not path or path[-1] != kstatus(obj):
                path.append(kstatus(obj))
        return path

    async def until(self, kind: str, name: str, state: str) -> None:
        last = self.versions[kind, name]
        try:
            await self.world.until(lambda: self.state(kind, name) == state, what=f"{kind} {name} is {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}; {last[-1].get('status')}") from None


def check_version(kind: str, obj: Mapping[str, Any]) -> None:
    """Check the rules that hold for each version by itself."""
    generation, status = obj["metadata"]["generation"], obj.get("status") or {}
    conditions = status.get("conditions") or []
    seen = status.get("observedGeneration", 0)
    assert seen <= generation, (kind, obj)
    for condition in conditions:
        assert 0 < condition["observedGeneration"] <= seen, (kind, condition)
        assert condition["lastTransitionTime"], (kind, condition)
    by_type = {condition["type"]: condition for condition in conditions}
    if conditions:
        assert "Ready" in by_type, (kind, conditions)
    if by_type.get("Ready", {}).get("status") == "True":
        wrong = [by_type[name] for name in ("Accepted", "Programmed", "Serving", "ResolvedRefs") if name in by_type]
        assert all(condition["status"] != "False" for condition in wrong), (kind, wrong)
        assert "Stalled" not in by_type


@pytest.mark.req("F-24", "F-25")
async def test_no_object_of_any_kind_is_current_too_soon(world: HubWorld, hub: RunningHub) -> None:
    recorder, shop, apply = Recorder(world), Shop(world), world.user.apply
    await world.tenant("west")
    await world.heartbeat()
    await shop.open()
    await shop.group("web", pods=PODS_OF_WEB)
    await shop.pod("web-0", "10.1.0.1")
    pool = {"metadata": {"name": "spare"}, "spec": {"addresses": ["198.51.100.0/29"]}}
    await apply(ADDRESS_POOLS, pool, manager="kubectl")
    await names_world.zone(world)
    await names_world.gateway(world)
    await names_world.route(world, "shop.example.com")
    everywhere = {"service": "shop/web", "ports": [{"port": 80}], "members": [{"tenant": "east"}]}
    body = {"metadata": {"name": "everywhere", "namespace": "shop"}, "spec": everywhere}
    await apply(GLOBAL_SERVICES, body, manager="kubectl")
    issuer = {"metadata": {"name": "ca"}, "spec": {"server": "https://127.0.0.1:1/dir", "email": "a@example.com"}}
    await apply(CERTIFICATE_ISSUERS, issuer, manager="kubectl")
    await world.slice("web", "10.1.0.1")
    await world.lb()
    await world.lb("bare", ports=[{"port": 8080}])

    await recorder.until("TCPLoadBalancer", "web", "Current")
    await recorder.until("LoadBalancer", "shared", "Current")
    await recorder.until("BackendGroup", "web", "Current")
    await recorder.until("AddressPool", "spare", "Current")
    await recorder.until("LoadBalancerClass", "edge", "Current")
    await recorder.until("Tenant", "east", "Current")
    # Without a backend an address is shown, which makes the Service Healthy at Argo CD, and nothing is in service.
    bare = recorder.versions["TCPLoadBalancer", "bare"][-1]
    assert built_in({"kind": "Service", "status": bare["status"]}) == "Healthy"
    assert health(ARGOCD, bare)[0] == "Progressing"
    # Another spec is InProgress until it is served; an invalid one is Failed, and the last valid one is still served.
    await world.lb(ports=[{"port": 80}, {"port": 81}])
    await world.quiet()
    await recorder.until("TCPLoadBalancer", "web", "Current")
    await apply(ADDRESS_POOLS, {**pool, "spec": {"addresses": ["198.51.100.9-198.51.100.1"]}}, manager="kubectl")
    await recorder.until("AddressPool", "spare", "Failed")
    await world.lb(ports=[{"port": 80}], spec={"className": "missing"})
    await shop.lb("other", className="missing")
    await world.quiet()
    assert recorder.state("TCPLoadBalancer", "web") == recorder.state("LoadBalancer", "other") == "InProgress"

    assert recorder.too_soon == []
    for (kind, name), versions in recorder.versions.items():
        for obj in versions:
            check_version(kind, obj)
            if "conditions" in obj.get("status", {}):
                assert health(ARGOCD, obj)[0] in HEALTH[kstatus(obj)], obj
        if kind != "TCPLoadBalancer" and not versions[0]["status"].get("conditions"):
            assert recorder.path(kind, name)[0] == "InProgress", (kind, name, versions[0])
    stated = {kind for (kind, _), versions in recorder.versions.items() if "status" in versions[-1]}
    assert stated >= {"TCPLoadBalancer", "HTTPLoadBalancer", "LoadBalancer", "BackendGroup", "Hostname", "DNSZone"}
    assert stated >= {"AddressPool", "LoadBalancerClass", "Tenant", "GlobalService", "CertificateIssuer"}
    await world.quiet(FLUSH_S + 1)  # histories are stored later
    written = len(hub.written)
    await world.quiet()
    assert hub.written[written:] == []
