"""``fairlead maintenance``: whose hosts are meant, and what is written at the hub."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import msgspec
import pytest
from cli_api import api

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES, read_maintenance
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.names import ANNOTATION_MAINTENANCE
from fairlead.cli import maintenance
from fairlead.cli.options import HubApi, Output
from fairlead.errors import BadConfiguration, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.model.http import MAX_PAGE_BYTES, Maintenance
from fairlead.status.object_ref import parse_object_ref

pytestmark = pytest.mark.req("F-22")

NAMESPACE = "tenant-east"
ENTRY = Maintenance(until="2100-01-01T00:00:00Z")


@contextlib.asynccontextmanager
async def hub(directory: Path) -> AsyncGenerator[tuple[Cluster, HubApi]]:
    """Two Ingresses: shop has two hosts, and api has one of these, too."""
    async with api(directory) as (cluster, kubeconfig):
        await cluster.create(NAMESPACES, {"metadata": {"name": NAMESPACE}})
        spec = {
            "listeners": [{"name": "http", "port": 80}],
            "origin": {"kind": "Gateway", "namespace": "a", "name": "g"},
        }
        await cluster.create(HTTP_LOAD_BALANCERS, {"metadata": {"name": "edge", "namespace": NAMESPACE}, "spec": spec})
        for name, hosts in (("shop", ["a.example", "b.example"]), ("api", ["b.example"]), ("lone", ["c.example"])):
            body = {
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "loadBalancer": "edge",
                    "attachments": [{"listener": "http", "hostnames": hosts}],
                    "backends": [{"name": f"default/{name}:80", "service": f"default/{name}"}],
                    "origin": {"kind": "Ingress", "namespace": "default", "name": name},
                },
            }
            await cluster.create(LOAD_BALANCER_ROUTES, body)
        yield cluster, HubApi(kubeconfig=kubeconfig)


async def change(hub_api: HubApi, subject: str, *hosts: str, entry: Maintenance | None = ENTRY) -> None:
    await maintenance.change_maintenance(
        parse_object_ref(subject, sharing=True), list(hosts), hub_api, Output.JSON, entry
    )


async def hosts_of(cluster: Cluster) -> list[str]:
    obj = await cluster.get(HTTP_LOAD_BALANCERS, NAMESPACE, "edge")
    return [entry.host for entry in read_maintenance(obj.annotation(ANNOTATION_MAINTENANCE))]


async def test_hosts_are_those_of_a_gateway_a_route_or_a_service(tmp_path: Path) -> None:
    async with hub(tmp_path) as (cluster, hub_api):
        await change(hub_api, "gateway/a/g", "X.example")
        await change(hub_api, "ingress/default/lone")
        assert await hosts_of(cluster) == ["x.example", "c.example"]
        await change(hub_api, "svc/default/lone", entry=None)
        assert await hosts_of(cluster) == ["x.example"]
        await change(hub_api, "httplb/tenant-east/edge")
        assert await hosts_of(cluster) == ["x.example", ""]
        await change(hub_api, "httplb/tenant-east/edge", entry=None)
        assert await hosts_of(cluster) == []


async def test_hosts_that_others_share_are_not_closed_unless_named(tmp_path: Path) -> None:
    async with hub(tmp_path) as (cluster, hub_api):
        for subject in ("ingress/default/shop", "svc/default/shop", "ingress/default/api"):
            with pytest.raises(BadConfiguration, match="--host"):
                await change(hub_api, subject)
        assert await hosts_of(cluster) == []
        await change(hub_api, "ingress/default/shop", "a.example")
        assert await hosts_of(cluster) == ["a.example"]
        with pytest.raises(NotFound):
            await change(hub_api, "svc/default/other")


async def test_a_host_that_a_route_does_not_have_is_refused(tmp_path: Path) -> None:
    async with hub(tmp_path) as (cluster, hub_api):
        for entry in (ENTRY, None):
            with pytest.raises(BadConfiguration, match=r"--host: x\.example"):
                await change(hub_api, "ingress/default/shop", "a.example", "x.example", entry=entry)
        assert await hosts_of(cluster) == []


async def test_a_time_with_another_offset_is_not_over(tmp_path: Path) -> None:
    async with hub(tmp_path) as (cluster, hub_api):
        zone = timezone(timedelta(hours=-12))
        until = (datetime.now(zone) + timedelta(hours=1)).isoformat(timespec="seconds")
        await change(hub_api, "gateway/a/g", "a.example", entry=msgspec.structs.replace(ENTRY, until=until))
        await change(hub_api, "gateway/a/g", "b.example")
        assert await hosts_of(cluster) == ["a.example", "b.example"]


async def test_entries_that_cannot_be_read_are_not_lost(tmp_path: Path) -> None:
    async with hub(tmp_path) as (cluster, hub_api):
        newer = '[{"host": "a.example", "until": "2100-01-01T00:00:00Z", "later": true}]'
        patch = {"metadata": {"annotations": {ANNOTATION_MAINTENANCE: newer}}}
        await cluster.merge_patch(HTTP_LOAD_BALANCERS, NAMESPACE, "edge", patch, manager="kubectl")
        for entry in (ENTRY, None):
            with pytest.raises(BadConfiguration, match=ANNOTATION_MAINTENANCE):
                await change(hub_api, "gateway/a/g", "b.example", entry=entry)
        obj = await cluster.get(HTTP_LOAD_BALANCERS, NAMESPACE, "edge")
        assert obj.annotation(ANNOTATION_MAINTENANCE) == newer


async def test_a_second_entry_of_a_host_replaces_the_first_and_what_ended_goes(tmp_path: Path) -> None:
    async with hub(tmp_path) as (cluster, hub_api):
        ended = msgspec.structs.replace(ENTRY, until="2000-01-01T00:00:00Z")
        await change(hub_api, "gateway/a/g", "a.example", entry=ended)
        await change(hub_api, "gateway/a/g", "b.example")
        await change(hub_api, "gateway/a/g", "b.example", entry=msgspec.structs.replace(ENTRY, status=502))
        obj = await cluster.get(HTTP_LOAD_BALANCERS, NAMESPACE, "edge")
        entries = read_maintenance(obj.annotation(ANNOTATION_MAINTENANCE))
        assert [(entry.host, entry.status) for entry in entries] == [("b.example", 502)]
        large = msgspec.structs.replace(ENTRY, page="x" * MAX_PAGE_BYTES)
        with pytest.raises(BadConfiguration, match="--page"):
            await change(hub_api, "gateway/a/g", *(f"{n}.example" for n in range(4)), entry=large)


@pytest.mark.parametrize(("content", "wrong"), [(b"x" * (MAX_PAGE_BYTES + 1), "65536"), (b"\xff", "UTF-8")])
def test_a_page_that_cannot_be_sent_is_refused(tmp_path: Path, content: bytes, wrong: str) -> None:
    page = tmp_path / "page.html"
    page.write_bytes(content)
    with pytest.raises(BadConfiguration, match=wrong):
        maintenance._read(page)
    with pytest.raises(BadConfiguration, match="--page"):
        maintenance._read(tmp_path / "missing.html")
    with pytest.raises(BadConfiguration, match="--allow"):
        maintenance._network("10.0.0.1/8")
