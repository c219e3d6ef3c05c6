"""What KIND/NAME, -n and -l mean at a hub: the same in every verb."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from cli_api import EAST, EDGE, SHARED, WEST, api, fill

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.names import ANNOTATION_ORIGIN, LABEL_POOL_SERVICE_SERVICE
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.cli.hub_reader import keys_of
from fairlead.cli.selection import certain, resolve_one, select, selection_of
from fairlead.errors import BadConfiguration, NotFound
from fairlead.status.object_ref import parse_object_ref
from fairlead.testing.builders import tcp_body


@pytest.mark.parametrize(
    ("subject", "namespace", "selector", "meant"),
    [
        ("", "", "", [EAST, WEST, EDGE, SHARED]),
        ("east/default/web", "", "", [EAST]),
        ("default/web", "", "", [EAST, WEST]),
        ("web", "", "", [EAST, WEST]),
        ("east/fairlead", "", "", [EDGE]),
        ("tenant-east/edge", "", "", [EDGE]),
        ("shop/shared", "", "", [SHARED]),
        ("shared", "shop", "", [SHARED]),
        ("svc/web", "", "", [EAST, WEST]),
        ("svc/west/default/web", "", "", [WEST]),
        ("svc/web", "", "in=west", [WEST]),
        ("lb/shared", "shop", "", [SHARED]),
        ("class/edge", "", "", [SHARED]),
        ("class/envoy", "", "in=east", [EAST]),
        ("", "default", "", [EAST, WEST]),
        ("", "tenant-east", "", [EAST, EDGE]),
        ("", "", "in in (east,west)", [EAST, WEST]),
        ("", "default", "in=east", [EAST]),
    ],
)
async def test_names_are_resolved_to_objects(
    subject: str, namespace: str, selector: str, meant: list[str], tmp_path: Path
) -> None:
    async with api(tmp_path) as (hub, _):
        await fill(hub)
        keys = await keys_of(hub, selection_of(subject, namespace, selector))
        assert sorted(map(str, keys)) == sorted(meant)


@pytest.mark.parametrize(
    ("subject", "namespace", "selector", "sentence"),
    [
        ("pod/web", "", "", "No load balancer is named 'pod/web'. To list them: fairlead status -o name"),
        ("east/default/we", "", "", "No load balancer is named 'east/default/we'. Did you mean 'east/default/web' or "),
        ("svc/none", "", "", "No load balancer of Service default/none found. The object does not exist"),
        ("", "none", "", "No load balancer is in namespace 'none'"),
        ("", "shop", "in=east", "No load balancer is in namespace 'shop' and has the labels 'in=east' at the hub"),
        ("lb/shared", "shop", "a=b", "No load balancer of LoadBalancer shop/shared has the labels 'a=b' at the hub"),
        ("class/none", "", "", "No load balancer uses LoadBalancerClass none"),
    ],
)
async def test_missing_objects(subject: str, namespace: str, selector: str, sentence: str, tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, _):
        await fill(hub)
        with pytest.raises(NotFound) as raised:
            await select(hub, selection_of(subject, namespace, selector))
        assert raised.value.sentence.startswith(sentence)


@pytest.mark.parametrize("subject", ["svc/shop/web", "shop/web"])
async def test_a_service_in_regions_is_its_load_balancers(subject: str, tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, _):
        await fill(hub)
        labels = {LABEL_POOL_SERVICE_SERVICE: "web"}
        spec = {"loadBalancerClass": "envoy", "nodepoolName": "eu"}
        metadata = {"name": "web-eu", "namespace": "shop", "labels": labels}
        await hub.create(POOL_SERVICES, {"metadata": metadata, "spec": spec})
        body: dict[str, Any] = tcp_body("shop.web-eu", namespace="shop")
        body["spec"]["origin"] = {"kind": "PoolService", "namespace": "shop", "name": "web-eu"}
        await hub.create(TCP_LOAD_BALANCERS, body)
        assert [str(key) for key in await keys_of(hub, selection_of(subject, "", ""))] == [
            "TCPLoadBalancer/shop/shop.web-eu"
        ]


async def test_what_changes_something_means_one_object(tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, _):
        await fill(hub)
        assert (await resolve_one(hub, parse_object_ref("west/default/web"))).path == "tcplb/tenant-west/default.web"
        with pytest.raises(BadConfiguration, match="name one of east/default/web, west/default/web"):
            await resolve_one(hub, parse_object_ref("default/web"))


@pytest.mark.parametrize("selector", ["in (", "a==b==c"])
def test_an_invalid_selector_is_rejected_before_any_request(selector: str) -> None:
    with pytest.raises(BadConfiguration, match=r"--selector: .*; write it as in app=web"):
        selection_of("", "", selector)


def test_what_changes_something_is_named() -> None:
    with pytest.raises(BadConfiguration, match="Name what to pause: KIND/NAME, as in svc/web, or several by"):
        certain(selection_of("", "shop", ""), "pause")
    assert certain(selection_of("", "shop", "app=web"), "pause").namespace == "shop"
    assert certain(selection_of("svc/web", "", ""), "pause").ref is not None


async def test_a_service_and_a_gateway_of_one_name_are_named_with_their_kinds(tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, _):
        await fill(hub)
        origin = {"kind": "Gateway", "namespace": "default", "name": "web"}
        annotations = {ANNOTATION_ORIGIN: "east/default/web"}
        metadata = {"name": "gateway.default.web", "namespace": "tenant-east", "annotations": annotations}
        spec = {"listeners": [{"name": "http", "port": 80}], "origin": origin}
        await hub.create(HTTP_LOAD_BALANCERS, {"metadata": metadata, "spec": spec})
        both = await select(hub, selection_of("east/default/web", "", ""))
        called = ["gateway/east/default/web", "svc/east/default/web"]
        assert sorted(both.values()) == called
        with pytest.raises(BadConfiguration, match=f"name one of {', '.join(called)}"):
            await resolve_one(hub, parse_object_ref("east/default/web"))
        for name in called:
            assert len(await select(hub, selection_of(name, "", "", sharing=True))) == 1


@pytest.mark.req("EDGE-17")
async def test_a_listener_set_is_on_the_load_balancer_that_has_its_listeners(tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, _):
        await fill(hub)
        listeners = [{"name": "http", "port": 80}, {"name": "infra/more/a", "port": 81}]
        patch = {"spec": {"listeners": listeners}}
        await hub.merge_patch(HTTP_LOAD_BALANCERS, "tenant-east", "edge", patch)
        assert list(map(str, await keys_of(hub, selection_of("listenerset/more", "infra", "", sharing=True)))) == [EDGE]
        with pytest.raises(NotFound):
            await keys_of(hub, selection_of("listenerset/mor", "infra", "", sharing=True))
