"""What ``explain`` says at a member of its Ingresses, Gateways and routes."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_api import api, fill

from fairlead.api.httploadbalancer import LOAD_BALANCER_ROUTES
from fairlead.api.ingress import INGRESS_CLASSES, INGRESSES
from fairlead.api.kubernetes import EVENTS, NAMESPACES
from fairlead.api.names import INGRESS_CONTROLLER
from fairlead.api.tenant import TENANTS
from fairlead.cli.explain import _present
from fairlead.cli.selection import selection_of


@pytest.mark.parametrize(
    ("named", "controller", "why"),
    [
        ("", "", "it names no class; set spec.ingressClassName"),
        ("gold", "", "there is no IngressClass gold in this cluster; create it, with the controller fairlead.dev/"),
        ("gold", "k8s.io/ingress-nginx", "IngressClass gold is another controller's; name a class with"),
        ("gold", INGRESS_CONTROLLER, "does an agent run? fairlead doctor"),
    ],
)
async def test_why_no_controller_looks_at_an_ingress(named: str, controller: str, why: str, tmp_path: Path) -> None:
    async with api(tmp_path) as (member, kubeconfig):
        spec = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
        spec |= {"ingressClassName": named} if named else {}
        await member.create(INGRESSES, {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec})
        if controller:
            await member.create(INGRESS_CLASSES, {"metadata": {"name": named}, "spec": {"controller": controller}})
        answer = await _present(selection_of("ingress/shop", "default", "", sharing=True), kubeconfig, "")
        assert any(line.startswith(f"Note: Fairlead has reported nothing: {why}") for line in answer.lines())


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
        assert "there is no Service web" not in " ".join((await _present(subject, kubeconfig, "")).lines())
        await cluster.create(TENANTS, {"metadata": {"name": "local"}, "spec": {}})
        answer = await _present(subject, kubeconfig, "")
        text = "\n".join(answer.lines())
        assert "BackendNotFound  there is no Service web" in text
        assert "HTTPLoadBalancer/tenant-east/edge" in text
        assert "HUB.kubeconfig" not in text
        assert {"hubLeads", "loadBalancers", "object"} == set(answer.value)
