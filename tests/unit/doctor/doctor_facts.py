"""An installation without a fault, as facts, and how a test plants one."""

from __future__ import annotations

import copy
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from fairlead.api.kinds import all_crds
from fairlead.api.meta import AnyResource, JSONObject
from fairlead.doctor.checks import examine
from fairlead.doctor.facts import (
    ApiFacts,
    AskedAddress,
    Expiry,
    Facts,
    Finding,
    KernelSetting,
    LinkFacts,
    Machine,
    ProxyMachineFacts,
    ReachedHub,
)
from fairlead.model.machine import AnnouncedAddress, BgpPeerPlan, MachinePlan, SessionState

NOW = datetime(2030, 1, 1, tzinfo=UTC)
VERSION = "0.2.0"


def stamp(age_s: float = 0.0) -> str:
    return (NOW - timedelta(seconds=age_s)).strftime("%Y-%m-%dT%H:%M:%SZ")


def obj(name: str, namespace: str = "", **rest: Any) -> JSONObject:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"metadata": metadata | rest.pop("metadata", {}), **rest}


def good(*kinds: str) -> JSONObject:
    return {"conditions": [{"type": kind, "status": "True", "reason": kind, "message": ""} for kind in kinds]}


def lease(namespace: str, name: str, **annotations: str) -> JSONObject:
    metadata = {"annotations": annotations, "managedFields": [{"time": stamp(3)}]}
    spec = {"holderIdentity": "h", "leaseDurationSeconds": 15, "renewTime": stamp(3)}
    return obj(name, namespace, metadata=metadata, spec=spec)


def deployment(name: str, namespace: str, labels: dict[str, str], image: str) -> JSONObject:
    spec = {"replicas": 2, "template": {"spec": {"containers": [{"name": "c", "image": image}]}}}
    return obj(name, namespace, metadata={"labels": labels}, spec=spec, status={"availableReplicas": 2})


def part(name: str) -> JSONObject:
    return deployment(
        name, "fairlead-system", {"app.kubernetes.io/name": name}, f"registry.example.com/fairlead:{VERSION}"
    )


_OF_TENANT = {"app.kubernetes.io/managed-by": "fairlead", "fairlead.dev/tenant": "east"}
_ANSWERED = {"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}}


def hub_objects() -> dict[str, list[JSONObject]]:
    agent = {"fairlead.dev/version": VERSION, "fairlead.dev/member-uid": "uid-east"}
    serving = good("Accepted", "ResolvedRefs", "Programmed", "Serving")
    return {
        "tenants.fairlead.dev": [obj("east", spec={}, status={})],
        "loadbalancerclasses.fairlead.dev": [obj("envoy", spec={"provider": "envoy"}, status=good("Accepted"))],
        "tcploadbalancers.fairlead.dev": [
            obj("default.web", "tenant-east", spec={"className": "envoy", "ports": [{"port": 80}]}, status=serving)
        ],
        "leases.coordination.k8s.io": [
            lease("fairlead-system", "fairlead-hub"),
            lease("tenant-east", "fairlead-agent", **agent),
        ],
        "namespaces": [obj("fairlead-system"), obj("tenant-east"), obj("kube-system")],
        "customresourcedefinitions.apiextensions.k8s.io": [copy.deepcopy(crd) for crd in all_crds()],
        "configmaps": [
            obj(
                "fairlead-proxies",
                "fairlead-system",
                data={"hub-1": '{"since":"","proxies":[{"node":"p1","group":"east","state":"SYNCED"}]}'},
            )
        ],
        "services": [
            obj(
                "proxy", "tenant-east", metadata={"labels": _OF_TENANT}, spec={"type": "LoadBalancer"}, status=_ANSWERED
            )
        ],
        "deployments.apps": [deployment("envoy", "tenant-east", _OF_TENANT, "envoy:1"), part("fairlead-hub")],
    }


def member_objects() -> dict[str, list[JSONObject]]:
    addresses = [{"type": "InternalIP", "address": "192.0.2.9"}]
    port = {"port": 80, "nodePort": 30000}
    return {
        "nodes": [
            obj(name, metadata={"labels": {}}, spec={}, status={"addresses": addresses, **good("Ready")})
            for name in ("n1", "n2")
        ],
        "services": [
            obj(
                "web",
                "default",
                metadata={"annotations": {}},
                spec={"type": "LoadBalancer", "selector": {"app": "web"}, "ports": [port]},
                status=_ANSWERED,
            )
        ],
        "endpointslices.discovery.k8s.io": [
            obj(
                "web-1",
                "default",
                metadata={"labels": {"kubernetes.io/service-name": "web"}},
                ports=[{"port": 8080}],
                endpoints=[{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
            )
        ],
        "leases.coordination.k8s.io": [lease("fairlead-system", "fairlead-agent-leader")],
        "ingressclasses.networking.k8s.io": [
            obj("fairlead", metadata={"annotations": {}}, spec={"controller": "fairlead.dev/ingress-controller"})
        ],
        "ingresses.networking.k8s.io": [obj("web", "default", spec={"ingressClassName": "fairlead"})],
        "gatewayclasses.gateway.networking.k8s.io": [
            obj("fairlead", spec={"controllerName": "fairlead.dev/gateway-controller"}, status=good("Accepted"))
        ],
        "deployments.apps": [part("fairlead-agent")],
    }


def healthy() -> Facts:
    year = Expiry("token", "kubeconfig", NOW + timedelta(days=365), "renew it")
    served = frozenset(crd["spec"]["names"]["plural"] for crd in all_crds())
    side = ApiFacts(name="hub", server="https://hub", version="v1.36.2", ahead_s=0.1, now=NOW, endings=(year,))
    return Facts(
        version=VERSION,
        hub=msgspec.structs.replace(side, uid="uid-hub", served=served, objects=hub_objects()),
        member=msgspec.structs.replace(
            side, name="member", server="https://m", uid="uid-east", objects=member_objects()
        ),
        machine=Machine(data_dir="/var/lib/fairlead", envoy="/bin/envoy"),
        proxy=ProxyMachineFacts(
            state_dir="/var/lib/fairlead-proxy",
            now=NOW,
            machine="m1",
            plan=MachinePlan(
                machine="m1",
                version="1",
                addresses=(
                    AnnouncedAddress(address="192.0.2.10", announcement="L2"),
                    AnnouncedAddress(address="198.51.100.1", announcement="BGP"),
                ),
                bgp_peers=(BgpPeerPlan(name="tor", asn=64512, local_asn=64513, address="192.0.2.254"),),
            ),
            runs=True,
            envoy_answers=True,
            certificate_ends=NOW + timedelta(days=60),
            renew_at=NOW + timedelta(days=30),
            hubs=(ReachedHub("192.0.2.2:7443", "192.0.2.2:7444", ahead_s=0.4),),
            settings=(
                KernelSetting("net.ipv4.ip_nonlocal_bind", 1),
                KernelSetting("net.ipv4.conf.eth0.rp_filter", 0),
                KernelSetting("net.ipv4.conf.eth0.arp_ignore", 1),
                KernelSetting("net.ipv4.conf.eth0.arp_announce", 2),
            ),
            links=(
                LinkFacts("eth0", up=True, mtu=1500, subnets=("192.0.2.0/24",)),
                LinkFacts("eth1.7", up=True, mtu=1500, subnets=("10.7.0.0/16",)),
            ),
            ageing_s={"br0": 300.0},
            addresses=(AskedAddress("192.0.2.10", "eth0", "02::1", True),),
            sessions=(SessionState(peer="tor", state="Established", up=True, bfd="Up"),),
        ),
    )


Change = Callable[[JSONObject], Any]


def with_object(side: str, resource: AnyResource, change: Change, *, every: bool = False) -> Facts:
    """Change the first object of a kind, or every one."""
    facts = healthy()
    objects = getattr(facts, side).objects[resource.full_name]
    for each in objects if every else objects[:1]:
        change(each)
    return facts


def with_more(side: str, resource: AnyResource, *more: JSONObject) -> Facts:
    facts = healthy()
    getattr(facts, side).objects.setdefault(resource.full_name, []).extend(more)
    return facts


def without(side: str, resource: AnyResource) -> Facts:
    facts = healthy()
    getattr(facts, side).objects[resource.full_name] = []
    return facts


def with_fields(which: str, **fields: Any) -> Facts:
    """Change fields of the hub, the member or the machine."""
    facts = healthy()
    return msgspec.structs.replace(facts, **{which: msgspec.structs.replace(getattr(facts, which), **fields)})


def with_condition(kind: str, status: str, message: str, reason: str = "Because") -> Change:
    def change(each: JSONObject) -> None:
        kept = [condition for condition in each["status"]["conditions"] if condition["type"] != kind]
        each["status"]["conditions"] = [*kept, {"type": kind, "status": status, "reason": reason, "message": message}]

    return change


def only(facts: Facts, check: str) -> Finding:
    """Return the one finding; each planted fault is named once, and nothing else is."""
    findings = examine(facts)
    assert [finding.check for finding in findings] == [check], findings
    (finding,) = findings
    assert finding.object
    assert finding.fault
    assert finding.fix
    return finding
