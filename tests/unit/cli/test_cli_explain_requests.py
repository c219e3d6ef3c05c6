"""What ``explain`` says at a member of its Ingresses, Gateways and routes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_api import api, fill

from fairlead.api.gateway import GATEWAYS, HTTP_ROUTES, LISTENER_SETS
from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import CRDS, EVENTS, INGRESS_CLASSES, INGRESSES, NAMESPACES
from fairlead.api.meta import AnyResource
from fairlead.api.names import INGRESS_CONTROLLER
from fairlead.api.tenant import TENANTS
from fairlead.cli.explain import KINDS_OF_REQUESTS, present_of
from fairlead.cli.options import HubApi
from fairlead.cli.selection import selection_of
from fairlead.status.object_ref import SHARING
from podless.offline import gateway_definitions

BACKEND = {"service": {"name": "web", "port": {"number": 80}}}


@pytest.mark.parametrize(
    ("named", "controller", "why"),
    [
        ("", "", "no class is named; set spec.ingressClassName"),
        ("gold", "", "there is no IngressClass gold in this cluster; create it, with the controller fairlead.dev/"),
        ("gold", "k8s.io/ingress-nginx", "IngressClass gold is another controller's; name a class with"),
        ("gold", INGRESS_CONTROLLER, "does an agent run? fairlead doctor"),
    ],
)
async def test_why_no_controller_looks_at_an_ingress(named: str, controller: str, why: str, tmp_path: Path) -> None:
    async with api(tmp_path, kinds=False) as (member, kubeconfig):
        spec = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
        spec |= {"ingressClassName": named} if named else {}
        await member.create(INGRESSES, {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec})
        if controller:
            await member.create(INGRESS_CLASSES, {"metadata": {"name": named}, "spec": {"controller": controller}})
        answer = await present_of(selection_of("ingress/shop", "default", "", sharing=True), HubApi(kubeconfig))
        assert any(line.startswith(f"Note: Fairlead has reported nothing: {why}") for line in answer.lines())


async def test_a_class_and_a_gateway_that_are_mistyped_are_named_with_those_that_are_near(tmp_path: Path) -> None:
    async with api(tmp_path, kinds=False) as (member, kubeconfig):
        for crd in gateway_definitions("Gateway", "HTTPRoute"):
            await member.create(CRDS, crd)
        await member.create(
            INGRESS_CLASSES, {"metadata": {"name": "fairlead"}, "spec": {"controller": INGRESS_CONTROLLER}}
        )
        spec: dict[str, object] = {"ingressClassName": "fairlaed", "defaultBackend": BACKEND}
        await member.create(INGRESSES, {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec})
        spec = {"gatewayClassName": "fairlead", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
        await member.create(GATEWAYS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
        spec = {"parentRefs": [{"name": "wbe"}]}
        await member.create(HTTP_ROUTES, {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec})
        answer = await present_of(selection_of("ingress/shop", "default", "", sharing=True), HubApi(kubeconfig))
        assert any(line.endswith("Did you mean 'fairlead'?") for line in answer.lines())
        answer = await present_of(selection_of("httproute/shop", "default", "", sharing=True), HubApi(kubeconfig))
        expected = (
            "there is no Gateway wbe in namespace default; correct the reference to its parent. Did you mean 'web'?"
        )
        assert f"Note: Fairlead has reported nothing: {expected}" in answer.lines()


async def test_a_gateway_is_explained_with_what_is_wrong_with_its_listeners(tmp_path: Path) -> None:
    async with api(tmp_path, kinds=False) as (member, kubeconfig):
        for crd in gateway_definitions("Gateway"):
            await member.create(CRDS, crd)
        spec = {"gatewayClassName": "fairlead", "listeners": [{"name": "http", "port": 80, "protocol": "HTPP"}]}
        await member.create(GATEWAYS, {"metadata": {"name": "web", "namespace": "default"}, "spec": spec})
        good = {"type": "Conflicted", "status": "False", "reason": "NoConflicts", "message": "alone"}
        bad = {"type": "Accepted", "status": "False", "reason": "UnsupportedProtocol", "message": "HTPP is not served"}
        stamps = {"lastTransitionTime": "2030-01-01T00:00:00Z"}
        listener = {
            "name": "http",
            "attachedRoutes": 0,
            "supportedKinds": [],
            "conditions": [good | stamps, bad | stamps],
        }
        patch = {"status": {"listeners": [listener]}}
        await member.merge_patch(GATEWAYS, "default", "web", patch, manager="test", subresource="status")
        lines = list(
            (await present_of(selection_of("gateway/web", "default", "", sharing=True), HubApi(kubeconfig))).lines()
        )
        (shown,) = [" ".join(line.split()) for line in lines if "listener http" in line]
        assert shown == "listener http Accepted False UnsupportedProtocol HTPP is not served"


async def test_where_hub_and_member_are_one_cluster_an_ingress_is_explained_by_both(tmp_path: Path) -> None:
    async with api(tmp_path) as (cluster, kubeconfig):
        await fill(cluster)
        await cluster.create(NAMESPACES, {"metadata": {"name": "tenant-local"}})
        origin = {"kind": "Ingress", "namespace": "default", "name": "shop"}
        spec = {"loadBalancer": "edge", "attachments": [], "rules": [], "origin": origin}
        await cluster.create(
            LOAD_BALANCER_ROUTES, {"metadata": {"name": "shop", "namespace": "tenant-east"}, "spec": spec}
        )
        spec = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
        await cluster.create(INGRESSES, {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec})
        event = {
            "metadata": {"name": "shop.1", "namespace": "default"},
            "involvedObject": {"kind": "Ingress", "namespace": "default", "name": "shop"},
            "type": "Warning", "reason": "BackendNotFound", "message": "there is no Service web",
            "source": {"component": "fairlead-agent"},
        }  # fmt: skip
        await cluster.create(EVENTS, event)
        subject = selection_of("ingress/shop", "default", "", sharing=True)
        assert "there is no Service web" not in " ".join((await present_of(subject, HubApi(kubeconfig))).lines())
        await cluster.create(TENANTS, {"metadata": {"name": "local"}, "spec": {}})
        answer = await present_of(subject, HubApi(kubeconfig))
        text = "\n".join(answer.lines())
        assert "BackendNotFound  there is no Service web" in text
        assert "HTTPLoadBalancer/tenant-east/edge" in text
        assert "HUB.kubeconfig" not in text
        assert {"hubLeads", "loadBalancers", "object"} == set(answer.value)


@pytest.mark.req("EDGE-17")
@pytest.mark.parametrize("kind", KINDS_OF_REQUESTS, ids=lambda kind: kind.kind)
async def test_each_kind_of_gateway_api_is_explained_at_its_member(kind: AnyResource, tmp_path: Path) -> None:
    assert {each.kind for each in KINDS_OF_REQUESTS} == set(SHARING.values())
    async with api(tmp_path, kinds=False) as (member, kubeconfig):
        for crd in gateway_definitions("GatewayClass", *(kind.kind for kind in KINDS_OF_REQUESTS)):
            await member.create(CRDS, crd)
        spec: dict[str, object] = {
            "parentRefs": [{"name": "gone"}],
            "rules": [{"backendRefs": [{"name": "web", "port": 1}]}],
        }
        if kind is LISTENER_SETS:
            listeners = [{"name": "http", "port": 80, "protocol": "HTTP"}]
            spec = {"parentRef": {"name": "gone"}, "listeners": listeners}
        elif kind is GATEWAYS:
            spec = {"gatewayClassName": "gone", "listeners": [{"name": "http", "port": 80, "protocol": "HTTP"}]}
        elif kind.kind == "TLSRoute":
            spec["hostnames"] = ["shop.example.com"]
        elif kind is INGRESSES:
            spec = {"ingressClassName": "gone", "defaultBackend": BACKEND}
        await member.create(kind, {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec})
        subject = f"{kind.kind.lower()}/shop"
        lines = (await present_of(selection_of(subject, "default", "", sharing=True), HubApi(kubeconfig))).lines()
        assert next(iter(lines)).startswith(f"{kind.kind} default/shop")
        assert any("there is no" in line and "gone" in line for line in lines)
