"""``fairlead status --watch`` prints one document after another as ``kubectl get --watch`` does."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from cli_api import api, fill

from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.testing.worlds.processes import fairlead


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
