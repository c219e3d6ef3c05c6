"""``fairlead status --watch`` prints one document after another as ``kubectl get --watch`` does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_api import api, fill

from fairlead.api.kinds import all_crds
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import install_crds
from fairlead.kube.kubeconfig import load_config
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.processes import fairlead


def documents(text: str, form: str) -> list[Any]:
    """Return the whole documents of ``text``: of YAML those before a ``---``, of JSON one after the other."""
    if form == "yaml":
        return [yaml.safe_load(part) for part in text.split("\n---\n")]
    decoder, read = json.JSONDecoder(), []
    while text := text.lstrip():
        document, end = decoder.raw_decode(text)
        read.append(document)
        text = text[end:]
    return read


@pytest.mark.parametrize("form", ["yaml", "json"])
async def test_the_documents_of_a_watch_are_separate_as_those_of_kubectl(form: str, tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, kubeconfig):
        await fill(hub)
        process = await asyncio.create_subprocess_exec(
            *fairlead("status", "--watch", "-o", form, "--kubeconfig", str(kubeconfig)), stdout=asyncio.subprocess.PIPE
        )
        assert process.stdout is not None
        text = ""
        try:
            async with asyncio.timeout(120):
                while "healthy" not in text:
                    text += (await process.stdout.read(65536)).decode()
                await hub.delete(TCP_LOAD_BALANCERS, "tenant-west", "default.web")
                while text.count("healthy") < 2:
                    text += (await process.stdout.read(65536)).decode()
        finally:
            process.terminate()
            text += (await process.communicate())[0].decode()
    read = documents(text, form)
    assert [len(each["loadBalancers"]) for each in read[:2]] == [4, 3], text


@pytest.mark.req("EDGE-15")
@pytest.mark.parametrize("verb", [["status"], ["explain", "-n", "default"], ["names"]], ids=lambda verb: verb[0])
async def test_a_watch_survives_a_restart_of_the_api(verb: list[str], tmp_path: Path) -> None:
    apis = EmbeddedApis(tmp_path, ["hub"])
    await apis.start()
    try:
        kubeconfig = str(apis.kubeconfig("hub"))
        async with Cluster(load_config(kubeconfig), name="hub") as hub:
            await install_crds(hub, all_crds(), "tests")
            await fill(hub)
            process = await asyncio.create_subprocess_exec(
                *fairlead(*verb, "--watch", "--kubeconfig", kubeconfig),
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.PIPE,
            )
            assert process.stdout is not None
            assert process.stderr is not None
            try:
                async with asyncio.timeout(120):
                    assert await process.stdout.read(1)
                    await apis.kill("hub")
                    assert "Asking again" in (await process.stderr.readline()).decode()
                    await apis.restart("hub")
                    while "Answered again" not in (await process.stderr.readline()).decode():
                        assert process.returncode is None
            finally:
                if process.returncode is None:
                    process.terminate()
                await process.communicate()
    finally:
        await apis.close()
