"""What ``kubectl get lb,bg,br,lbc`` shows: the columns that a person needs, short enough for one line each."""

from __future__ import annotations

import asyncio
import re
import shutil

import pytest
from shop_world import open_shop

from fairlead.api.backendgroup import BACKEND_GROUPS


@pytest.fixture
async def shop(world):
    async with open_shop(world) as opened:
        yield opened


async def kubectl_get(world, tmp_path, what):
    """Return the table as its header and a row for each object, cells split where two blanks are."""
    world.server.write_kubeconfig(tmp_path / "kubeconfig")
    text = ["kubectl", f"--kubeconfig={tmp_path / 'kubeconfig'}", "-n", "shop", "get", what]
    done = await asyncio.create_subprocess_exec(*text, stdout=asyncio.subprocess.PIPE)
    out, _ = await done.communicate()
    assert done.returncode == 0
    return [re.split(r"\s{2,}", line.strip()) for line in out.decode().splitlines() if line]


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
async def test_columns(shop, world, tmp_path):
    await shop.class_("driven", draining=True)
    await shop.pod("web-0", "10.1.0.1")
    await shop.group("web", pods={"byName": ["web-0"], "ports": [{"port": 8080}]})
    await shop.group("bad", static=["10.9.0.1:8080"], parameters={"weight": "much"})
    await shop.until("10.1.0.1")
    await shop.registered(1)
    await shop.group_says("web", "Programmed", "True")
    await shop.group_says("bad", "Programmed", "False")
    await world.quiet()
    header, *rows = await kubectl_get(world, tmp_path, "lb")
    assert header == ["NAME", "CLASS", "ADDRESS", "PROGRAMMED", "REASON", "SERVING", "TARGETS", "AGE"]
    (row,) = rows
    assert row[:2] == ["shared", "edge"]
    assert row[-5:-1] == ["True", "Programmed", "Unknown", "1/1"]
    header, *rows = await kubectl_get(world, tmp_path, "bg")
    assert header == ["NAME", "LOAD BALANCERS", "PROGRAMMED", "REASON", "REGISTERED", "EXPECTED", "AGE"]
    assert [row[:-1] for row in rows] == [
        ["bad", "shared", "False", "Invalid", "0", "0"],
        ["web", "shared", "True", "Programmed", "1", "1"],
    ]
    header, *rows = await kubectl_get(world, tmp_path, "br")
    assert header == ["NAME", "LOAD BALANCER", "TARGET", "ADDRESS", "PORT", "STATE", "REASON", "AGE"]
    assert [row[1:-1] for row in rows] == [["shared", "Pod/web-0", "10.1.0.1", "8080", "Registered", "New"]]
    header, *rows = await kubectl_get(world, tmp_path, "lbc")
    assert header == ["NAME", "PROVIDER", "TARGETS", "ACCEPTED", "LOAD BALANCERS", "DRAINING", "AGE"]
    assert [row[:-1] for row in rows] == [
        ["driven", "webhook", "True", "0", "true"],
        ["edge", "memory", "True", "1"],
        ["envoy", "envoy", "True", "0"],
    ]
    assert {condition.type for condition in (await shop.api.get(BACKEND_GROUPS, "shop", "web")).status.conditions} == {
        "Accepted",
        "ResolvedRefs",
        "Ready",
        "Programmed",
    }
