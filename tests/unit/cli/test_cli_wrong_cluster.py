"""A command for a hub that gets the kubeconfig of a member says so, and names the next step."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest
from cli_api import api

from fairlead.api.kubernetes import LEASES, NAMESPACES
from fairlead.api.names import AGENT_LEADER_LEASE, HUB_LEASE, SYSTEM_NAMESPACE
from fairlead.cli.hub_reader import NO_KINDS, check_kinds, connect_hub
from fairlead.cli.main import app
from fairlead.cli.options import HubApi
from fairlead.cli.run import run_app
from fairlead.errors import NotServed

COMMANDS = ("status", "audit", "pause lb/web", "drill history", "tenant list")


@pytest.mark.req("X-36")
async def test_commands_name_the_member_and_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with api(tmp_path, kinds=False) as (member, kubeconfig):
        await member.create(LEASES, {"metadata": {"name": AGENT_LEADER_LEASE, "namespace": "kube-system"}})
        for command in COMMANDS:
            monkeypatch.setattr(sys, "argv", ["fairlead", *command.split(), "--kubeconfig", str(kubeconfig)])
            code = await asyncio.to_thread(run_app, app)
            printed = "".join(capsys.readouterr())
            assert code, command
            assert "is a member" in printed, command
            assert "kubeconfig of the hub" in printed, command
            assert "CustomResourceDefinition" not in printed, command


async def test_a_hub_whose_definitions_were_deleted(tmp_path: Path) -> None:
    async with api(tmp_path, kinds=False) as (hub, kubeconfig):
        await hub.create(NAMESPACES, {"metadata": {"name": SYSTEM_NAMESPACE}})
        await hub.create(LEASES, {"metadata": {"name": HUB_LEASE, "namespace": SYSTEM_NAMESPACE}})
        with pytest.raises(NotServed, match="fairlead crds") as raised:
            async with connect_hub(HubApi(kubeconfig)) as cluster:
                await check_kinds(cluster)
    assert raised.value.reason == NO_KINDS
