"""The process on a proxy machine: the addresses of xDS servers, and what a node of a cluster reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import BadConfiguration
from fairlead.machine.app import join_node, xds_addresses
from fairlead.machine.state import StateDirectory


def test_xds_is_at_the_next_port_of_each_hub() -> None:
    assert xds_addresses(["hub.example:7443", "[2001:db8::1]:7443"]) == ("hub.example:7444", "[2001:db8::1]:7444")


@pytest.mark.req("P-1")
@pytest.mark.parametrize("files", [{}, {"token": "a.b.c"}, {"token": "a.b.c", "hubs.json": "{}"}])
async def test_a_node_without_its_volume_says_what_is_missing(tmp_path: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(BadConfiguration, match="--node") as missing:
        await join_node(StateDirectory(tmp_path / "state"), tmp_path, name="node-1")
    assert "proxy-nodes.yaml" in missing.value.sentence
