"""Completion of objects: what TAB offers at a hub, and at a member."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cli_api import api

from fairlead.api.gateway import GATEWAYS
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
from fairlead.api.kubernetes import INGRESSES, NAMESPACES, SERVICES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.cli import explain as explain_command
from fairlead.cli.complete import complete_explained, complete_load_balancer, complete_object
from fairlead.cli.options import HubApi
from fairlead.cli.selection import resolve_one, selection_of
from fairlead.errors import BadConfiguration, NotFound, NotServed
from fairlead.status.object_ref import parse_object_ref
from fairlead.testing.builders import tcp_body

PLACE = "tenant-east"


async def offered(complete: Any, kubeconfig: Path, typed: str = "", namespace: str = "default") -> list[str]:
    context = SimpleNamespace(params={"kubeconfig": kubeconfig, "namespace": namespace})
    return await asyncio.to_thread(complete, context, typed)


def http_body(named: str, kind: str, **origin: str) -> dict[str, Any]:
    listeners = [{"name": "http", "port": 80}]
    return {
        "metadata": {"name": named, "namespace": PLACE},
        "spec": {"listeners": listeners, "origin": {"kind": kind, **origin}},
    }


@pytest.mark.req("OP-8")
async def test_at_a_hub_explain_is_offered_what_shares_a_load_balancer_too(tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, kubeconfig):
        await hub.create(NAMESPACES, {"metadata": {"name": PLACE}})
        await hub.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "edge"}, "spec": {"provider": "envoy"}})
        origin = {"kind": "Service", "namespace": "default", "name": "web"}
        await hub.create(TCP_LOAD_BALANCERS, tcp_body("default.web", namespace=PLACE, spec={"origin": origin}))
        await hub.create(HTTP_LOAD_BALANCERS, http_body("edge", "IngressClass", name="edge"))
        await hub.create(HTTP_LOAD_BALANCERS, http_body("gw", "Gateway", namespace="shop", name="main"))
        for kind, name in (("Ingress", "cart"), ("HTTPRoute", "api")):
            spec = {"loadBalancer": "edge", "origin": {"kind": kind, "namespace": "default", "name": name}}
            await hub.create(LOAD_BALANCER_ROUTES, {"metadata": {"name": name, "namespace": PLACE}, "spec": spec})
        balancers = [f"httplb/{PLACE}/edge", f"httplb/{PLACE}/gw", "svc/web", f"tcplb/{PLACE}/default.web"]
        assert await offered(complete_load_balancer, kubeconfig) == balancers
        assert await offered(complete_object, kubeconfig) == ["class/edge", *balancers]
        assert await offered(complete_explained, kubeconfig) == sorted(
            [*balancers, "class/edge", "gateway/shop/main", "httproute/api", "ingress/cart"]
        )
        assert await offered(complete_explained, kubeconfig, "gateway/m", "shop") == ["gateway/main"]


@pytest.mark.req("OP-8")
async def test_an_object_of_two_members_is_offered_as_the_error_lists_it(tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, kubeconfig):
        for member in ("east", "west"):
            await hub.create(NAMESPACES, {"metadata": {"name": f"tenant-{member}"}})
            body = tcp_body("default.web", namespace=f"tenant-{member}")
            body["spec"]["origin"] = {"kind": "Service", "namespace": "default", "name": "web"}
            body["metadata"]["annotations"] = {"fairlead.dev/origin": f"{member}/default/web"}
            await hub.create(TCP_LOAD_BALANCERS, body)
        named = ["svc/east/default/web", "svc/west/default/web"]
        assert await offered(complete_object, kubeconfig, "svc/") == named
        with pytest.raises(BadConfiguration, match=f"name one of {', '.join(named)}"):
            await resolve_one(hub, parse_object_ref("svc/web"))


@pytest.mark.req("OP-8")
async def test_at_a_member_explain_is_offered_what_the_member_has(tmp_path: Path) -> None:
    async with api(tmp_path, kinds=False) as (member, kubeconfig):
        for name, kind in (("web", "LoadBalancer"), ("internal", "ClusterIP")):
            body = {"metadata": {"name": name, "namespace": "default"}, "spec": {"type": kind, "ports": [{"port": 80}]}}
            await member.create(SERVICES, body)
        spec = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
        await member.create(INGRESSES, {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec})
        assert await offered(complete_explained, kubeconfig) == ["ingress/shop", "svc/web"]
        assert await offered(complete_object, kubeconfig) == [], "other verbs are for a hub"
        with pytest.raises(NotServed):
            await member.list(GATEWAYS)


@pytest.mark.req("OP-8")
async def test_nothing_is_offered_where_nothing_answers(tmp_path: Path) -> None:
    assert await offered(complete_explained, tmp_path / "none") == []


@pytest.mark.parametrize(
    ("subject", "sentence"),
    [
        ("svc/none", "Service default/none does not exist; to list all: kubectl get svc -A"),
        ("ingress/none", "Ingress default/none does not exist; to list all: kubectl get ingress -A"),
        ("lb/none", "no hub has run at http://127.0.0.1"),
    ],
)
async def test_what_a_member_does_not_have_is_not_there(tmp_path: Path, subject: str, sentence: str) -> None:
    async with api(tmp_path, kinds=False) as (_, kubeconfig):
        selection = selection_of(subject, "", "", sharing=True)
        with pytest.raises((NotFound, NotServed)) as raised:
            await explain_command.present_of(selection, HubApi(kubeconfig))
        assert raised.value.sentence.startswith(sentence)
