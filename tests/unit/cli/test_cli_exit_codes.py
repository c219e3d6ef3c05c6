"""The exit codes that people and scripts get: a finding is never the code of a failure, for any command."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from cli_api import api, fill

from fairlead.api.backendgroup import BACKEND_RECORDS
from fairlead.api.hostname import HOSTNAMES
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.cli.main import VERBS
from fairlead.cli.run import FAILED, MEANINGS, OF_COMMANDS, OK, UNREACHABLE, USAGE, codes_of, epilog_of
from fairlead.kube.cluster import Cluster
from fairlead_demo.worlds.processes import fairlead, run_fairlead

#: Commands that ask the hub's API once, as typed.
ASKING = (
    ("status",), ("plan",), ("explain", "lb/shared"), ("route", "GET", "http://a.example/"), ("names",), ("drift",),
    ("version",), ("pause", "lb/shared"), ("resume", "lb/shared"), ("repair", "lb/shared"), ("gc",), ("convert",),
    ("tenant", "list"), ("tenant", "add", "east"), ("tenant", "rotate", "east"), ("tenant", "remove", "east"),
)  # fmt: skip


@pytest.mark.parametrize("typed", ASKING, ids=" ".join)
async def test_what_cannot_be_asked_is_a_failure_and_no_finding(typed: tuple[str, ...], tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound and not listening: connections are refused
        kubeconfig = tmp_path / "kubeconfig"
        kubeconfig.write_text(
            "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
            f'clusters: [{{name: c, cluster: {{server: "http://127.0.0.1:{taken.getsockname()[1]}"}}}}]\n'
            "users: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
        )
        away, _, said = await run_fairlead(*typed, "--kubeconfig", str(kubeconfig))
    assert away == UNREACHABLE, said


async def record(hub: Cluster, name: str, provider: str) -> None:
    """Write a record of LoadBalancer shop/``name``."""
    spec = {
        "loadBalancer": {"kind": "LoadBalancer", "namespace": "shop", "name": name, "provider": provider},
        "listener": {"protocol": "TCP", "port": 80},
        "target": {"address": "192.0.2.1", "port": 8080},
        "epoch": 1,
    }
    await hub.create(BACKEND_RECORDS, {"metadata": {"name": name, "namespace": "shop"}, "spec": spec})


async def orphan(hub: Cluster) -> None:
    """Have a record whose load balancer is gone."""
    await record(hub, "gone", "haproxy")


async def name(hub: Cluster) -> None:
    """Write a name that no zone holds."""
    spec = {"host": "shop.example.test", "addresses": ["192.0.2.80"]}
    await hub.create(HOSTNAMES, {"metadata": {"name": "shop", "namespace": "shop"}, "spec": spec})


async def foreign(hub: Cluster) -> None:
    """Have a load balancer at a provider that is not installed here."""
    await hub.create(LOAD_BALANCER_CLASSES, {"metadata": {"name": "edge"}, "spec": {"provider": "elsewhere"}})
    await record(hub, "shared", "elsewhere")


async def nothing(_: Cluster) -> None:
    """Leave it as it is."""


@pytest.mark.parametrize(
    ("typed", "prepare", "code"),
    [
        (("gc",), nothing, 0),
        (("gc",), orphan, 4),
        (("gc",), foreign, 1),
        (("drift",), nothing, 0),
        (("drift",), foreign, 1),
        (("names",), nothing, 0),
        (("names",), name, 4),
        (("route", "GET", "http://nowhere.example/"), nothing, 4),
        (("status",), nothing, 6),
        (("doctor",), nothing, 5),
        (("plan", "lb/no-such", "-n", "shop"), nothing, 1),
        (("gc", "lb/no-such", "-n", "shop"), nothing, 1),
    ],
    ids=lambda part: getattr(part, "__name__", None) or (part if isinstance(part, int) else part[0]),
)
async def test_an_answer_has_its_code(
    typed: tuple[str, ...], prepare: Callable[[Cluster], Awaitable[None]], code: int, tmp_path: Path
) -> None:
    async with api(tmp_path) as (hub, kubeconfig):
        await fill(hub)
        await prepare(hub)
        ended, out, said = await run_fairlead(*typed, "--kubeconfig", str(kubeconfig))
    assert ended == code, out + said
    assert code in codes_of(" ".join(typed[:1]))


@pytest.mark.parametrize("typed", [("status",), ("names",), ("doctor",)], ids=" ".join)
async def test_the_code_is_that_of_the_answer_also_when_its_reader_has_seen_enough(
    typed: tuple[str, ...], tmp_path: Path
) -> None:
    async with api(tmp_path) as (hub, kubeconfig):
        await fill(hub)
        await name(hub)
        reader, writer = os.pipe()
        os.close(reader)
        process = await asyncio.create_subprocess_exec(
            *fairlead(*typed, "--kubeconfig", str(kubeconfig)), stdout=writer, stderr=asyncio.subprocess.PIPE
        )
        os.close(writer)
        _, said = await process.communicate()
    assert (process.returncode, said) == ({"status": 6, "names": 4, "doctor": 5}[typed[0]], b"")


async def test_the_key_of_an_agent_is_named_where_an_administrator_is_needed(tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, kubeconfig):
        await fill(hub)
        key = tmp_path / "east"
        made, _, said = await run_fairlead(
            "tenant", "add", "east", "--kubeconfig", str(kubeconfig), "--output", str(key), "--new-hub"
        )
        assert made == OK, said
        for verb in (("status",), ("drift",), ("tenant", "list"), ("tenant", "remove", "east")):
            ended, _, said = await run_fairlead(*verb, "--kubeconfig", str(key))
            assert ended == USAGE, said
            assert "this is the key of tenant east, which only its agent can use; give an administrator's" in said


def test_the_table_has_every_command_and_every_code() -> None:
    assert {command.split()[0] for command in OF_COMMANDS} <= set(VERBS)
    for command in ("", *OF_COMMANDS):
        codes = codes_of(command)
        assert set(codes) <= set(MEANINGS)
        assert {OK, FAILED, USAGE} <= set(codes)
        assert [int(each) for each in re.findall(r"(?:: |· )(\d+) ", epilog_of(command))] == list(codes)
    assert {code for code, text in MEANINGS.items() if not text} <= {
        code for codes in OF_COMMANDS.values() for code in codes
    }
