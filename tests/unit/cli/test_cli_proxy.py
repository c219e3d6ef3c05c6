"""``fairlead proxy`` at an API: what it refuses, what it writes, and what it says next."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import re
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cli_api import api

from fairlead.api.kubernetes import CONFIG_MAPS, LEASES, NAMESPACES, SECRETS
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.names import HUB_LEASE, LABEL_PROXY_MACHINE, SYSTEM_NAMESPACE
from fairlead.api.proxymachine import PROXY_MACHINES, lease_name
from fairlead.cli import proxy
from fairlead.cli.options import HubApi, Output
from fairlead.cli.run import ATTENTION, OK
from fairlead.errors import NotFound, Terminal
from fairlead.hub.machines.control import ENDPOINTS, HubEndpoint
from fairlead.hub.machines.tokens import check_token
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.processes import wait_until

VIP = "192.0.2.10"
READY = [{"type": "Ready", "status": "True", "reason": "Ready"}]


@contextlib.asynccontextmanager
async def hub(directory: Path) -> AsyncGenerator[tuple[Cluster, HubApi]]:
    async with api(directory) as (cluster, kubeconfig):
        await cluster.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        await cluster.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "envoy"}, "spec": {"provider": "envoy"}})
        yield cluster, HubApi(kubeconfig=kubeconfig)


async def machine(
    cluster: Cluster, name: str, *, announces: str = "", link: str = "192.0.2.1/24", heard: bool = True
) -> None:
    await cluster.create(PROXY_MACHINES, {"metadata": {"name": name}, "spec": {}})
    status: dict[str, Any] = {"links": [{"name": "eth0", "addresses": [link]}], "conditions": READY}
    if announces:
        status |= {"addresses": [{"address": announces, "announced": True}], "announced": 1}
    await write_status(cluster, name, status)
    if heard:
        meta = {"namespace": SYSTEM_NAMESPACE, "name": lease_name(name), "labels": {LABEL_PROXY_MACHINE: "true"}}
        await cluster.apply(LEASES, {"metadata": meta, "spec": {"holderIdentity": name}}, manager="hub")


async def leads(cluster: Cluster, identity: str) -> None:
    meta = {"namespace": SYSTEM_NAMESPACE, "name": HUB_LEASE}
    lease = {"holderIdentity": identity, "leaseDurationSeconds": 3600}
    await cluster.apply(LEASES, {"metadata": meta, "spec": lease}, manager="hub")


async def write_status(cluster: Cluster, name: str, status: dict[str, Any]) -> None:
    body = {"metadata": {"name": name}, "status": status}
    await cluster.apply(PROXY_MACHINES, body, manager="hub", subresource="status")


async def drained_by_its_machine(cluster: Cluster, name: str) -> None:
    """Do what hub and machine do once the object says that it is drained."""

    async def drained() -> bool:
        return (await cluster.get(PROXY_MACHINES, "", name)).spec.drained

    await wait_until(drained, "the machine is drained")
    await write_status(cluster, name, {"newConnections": "None", "conditions": READY})


@pytest.mark.req("P-1")
async def test_a_token_is_one_command_that_a_hub_accepts(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async with hub(tmp_path) as (cluster, at):
        with pytest.raises(Terminal, match="--machines"):
            await proxy.create_token("edge", at, Output.TABLE)
        endpoints = {
            "hub-0": HubEndpoint("old.example:8443", "sha256:abc"),
            "hub-1": HubEndpoint("hub.example:8443", "sha256:abc"),
        }
        data = {replica: msgspec.json.encode(endpoint).decode() for replica, endpoint in endpoints.items()}
        meta = {"namespace": SYSTEM_NAMESPACE, "name": ENDPOINTS}
        await cluster.create(CONFIG_MAPS, {"metadata": meta, "data": data})
        await leads(cluster, "hub-1")
        await proxy.create_token("edge", at, Output.TABLE)
        command = capsys.readouterr().out
        form = r"fairlead proxy join hub\.example:8443 --token (\S+) --ca-fingerprint sha256:abc\n"
        printed = re.fullmatch(form, command)
        assert printed is not None
        ticket = await check_token(cluster, printed[1], cluster.server_clock.now())
        assert ticket.group == "edge"
        (secret,) = [obj for obj in await cluster.list(SECRETS, SYSTEM_NAMESPACE) if obj.type.startswith("fairlead")]
        stored = b"".join(base64.b64decode(value) for value in (secret.data or {}).values())
        assert printed[1].encode() not in stored


@pytest.mark.req("P-6")
async def test_drain_refuses_the_last_machine_of_an_address(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async with hub(tmp_path) as (cluster, at):
        await machine(cluster, "m1", announces=VIP)
        await machine(cluster, "m2", link="10.0.0.2/24")
        with pytest.raises(Terminal, match=f"{VIP}.*--force"):
            await proxy.drain_machine("m1", at, Output.TABLE, wait_s=30, force=False)
        assert not (await cluster.get(PROXY_MACHINES, "", "m1")).spec.drained
        acting = asyncio.create_task(drained_by_its_machine(cluster, "m1"))
        assert await proxy.drain_machine("m1", at, Output.TABLE, wait_s=30, force=True) == OK
        await acting
        assert "fairlead proxy undrain m1" in capsys.readouterr().out
        await proxy.undrain_machine("m1", at, Output.TABLE)
        assert not (await cluster.get(PROXY_MACHINES, "", "m1")).spec.drained


@pytest.mark.req("P-6")
async def test_a_name_as_the_list_prints_it_is_the_machine(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async with hub(tmp_path) as (cluster, at):
        await machine(cluster, "m1", announces=VIP)
        await machine(cluster, "m2")
        acting = asyncio.create_task(drained_by_its_machine(cluster, "m1"))
        assert await proxy.drain_machine("proxymachine/m1", at, Output.TABLE, wait_s=30, force=False) == OK
        await acting
        await proxy.undrain_machine("proxymachine/m1", at, Output.TABLE)
        assert not (await cluster.get(PROXY_MACHINES, "", "m1")).spec.drained
        removed = await proxy.remove_machine(
            "proxymachine/m1", at, Output.TABLE, wait_s=30, force=False, ignore_not_found=False
        )
        assert removed == OK
        assert "has never reported" not in capsys.readouterr().out
        assert [each.metadata.name for each in await cluster.list(PROXY_MACHINES)] == ["m2"]


@pytest.mark.req("P-6")
async def test_drain_waits_for_the_machine_and_says_when_it_still_has_traffic(tmp_path: Path):
    async with hub(tmp_path) as (cluster, at):
        await machine(cluster, "m1", announces=VIP)
        await machine(cluster, "m2")
        with pytest.raises(Terminal, match="No hub leads"):
            await proxy.drain_machine("m1", at, Output.TABLE, wait_s=0.1, force=False)
        await leads(cluster, "hub-0")
        assert await proxy.drain_machine("m1", at, Output.TABLE, wait_s=0.1, force=False) == ATTENTION


@pytest.mark.req("P-6")
async def test_a_silent_machine_is_removed_without_waiting(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async with hub(tmp_path) as (cluster, at):
        await machine(cluster, "m1", announces=VIP, heard=False)
        assert await proxy.remove_machine("m1", at, Output.TABLE, wait_s=600, force=False, ignore_not_found=False) == OK
        said = capsys.readouterr().out
        assert "revoked" in said
        assert "systemctl disable --now fairlead-proxy" in said
        assert await cluster.list(PROXY_MACHINES) == []
        with pytest.raises(NotFound, match="There are none"):
            await proxy.remove_machine("m1", at, Output.TABLE, wait_s=600, force=False, ignore_not_found=False)
        assert await proxy.remove_machine("m1", at, Output.TABLE, wait_s=600, force=False, ignore_not_found=True) == OK


BINARY = "/opt/envoy"


async def request(at: HubApi, *, binary: str = BINARY, version: str = "", force: bool = False) -> int:
    wanted = {"binary": binary, "version": version, "drainSeconds": 5, "force": force}
    return await proxy.upgrade_machines(wanted, "", at, Output.TABLE)


async def upgraded_by_the_hub(cluster: Cluster, name: str, phase: str) -> None:
    """Do what the hub does once a machine has another Envoy in its spec."""

    async def requested() -> str:
        upgrade = (await cluster.get(PROXY_MACHINES, "", name)).spec.upgrade
        return upgrade.requested if upgrade is not None else ""

    await wait_until(requested, "an upgrade is requested")
    state = {"requested": await requested(), "phase": phase, "message": "Envoy ended" if phase == "Failed" else ""}
    body = {"metadata": {"name": name}, "status": {"upgrade": state}}
    await cluster.apply(PROXY_MACHINES, body, manager="upgrades", subresource="status")


@pytest.mark.req("P-3")
async def test_an_upgrade_ends_at_a_failed_machine_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async with hub(tmp_path) as (cluster, at):
        await machine(cluster, "m1", announces=VIP)
        await machine(cluster, "m2")
        with pytest.raises(Terminal, match="No hub leads"):
            await request(at)
        await leads(cluster, "hub-0")
        acting = asyncio.gather(*(upgraded_by_the_hub(cluster, *each) for each in (("m1", "Done"), ("m2", "Failed"))))
        assert await request(at) == ATTENTION
        await acting
        assert "m2: Failed: Envoy ended" in capsys.readouterr().out
        assert await proxy.show_upgrade("", at, Output.TABLE, stop=False) == ATTENTION
        assert BINARY in capsys.readouterr().out
        first = (await cluster.get(PROXY_MACHINES, "", "m1")).spec.upgrade
        await cluster.merge_patch(PROXY_MACHINES, "", "m2", {"spec": {"upgrade": None}}, manager="user")
        acting = asyncio.gather(upgraded_by_the_hub(cluster, "m2", "Done"))
        assert await request(at) == OK
        await acting
        # The one that has it already is left alone.
        assert (await cluster.get(PROXY_MACHINES, "", "m1")).spec.upgrade == first
        assert await request(at) == OK


@pytest.mark.req("P-3")
async def test_an_upgrade_refuses_the_last_machine_of_an_address(tmp_path: Path):
    async with hub(tmp_path) as (cluster, at):
        await machine(cluster, "m1", announces=VIP)
        await machine(cluster, "m2", link="10.0.0.2/24")
        await leads(cluster, "hub-0")
        with pytest.raises(Terminal, match=f"{VIP}.*--force"):
            await request(at)
        assert (await cluster.get(PROXY_MACHINES, "", "m1")).spec.upgrade is None
        acting = asyncio.gather(*(upgraded_by_the_hub(cluster, name, "Done") for name in ("m1", "m2")))
        assert await request(at, force=True) == OK
        await acting


@pytest.mark.req("P-3")
async def test_a_stopped_upgrade_is_taken_back_where_it_has_not_begun(tmp_path: Path):
    async with hub(tmp_path) as (cluster, at):
        upgrade = {"requested": "a", "binary": BINARY}
        for name, phase in (("m1", "Restarting"), ("m2", "Waiting")):
            await cluster.create(PROXY_MACHINES, {"metadata": {"name": name}, "spec": {"upgrade": upgrade}})
            await upgraded_by_the_hub(cluster, name, phase)
        assert await proxy.show_upgrade("", at, Output.TABLE, stop=True) == OK
        requested = [obj.spec.upgrade is not None for obj in await cluster.list(PROXY_MACHINES)]
        assert requested == [True, False]


@pytest.mark.req("P-27")
async def test_the_list_names_what_is_near(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    async with hub(tmp_path) as (cluster, at):
        answer = await proxy._listing("", lambda _labels: True, at, Output.TABLE)
        assert "fairlead proxy token" in "".join(answer.lines())
        await machine(cluster, "edge-1", announces=VIP)
        answer = await proxy._listing("", lambda _labels: True, at, Output.TABLE)
        assert [line.split()[:3] for line in answer.lines()][1] == ["edge-1", "default", "Ready"]
        assert list(answer.names()) == ["proxymachine/edge-1"]
        with pytest.raises(NotFound, match="Did you mean 'edge-1'"):
            await proxy._listing("edge-2", lambda _labels: True, at, Output.TABLE)
