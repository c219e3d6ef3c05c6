"""What the demo of names says where no DNS server is installed, and which names it waits for."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from fairlead.errors import Terminal
from fairlead_demo.run import DemoSettings, run_names_demo
from fairlead_demo.stories import context as fleet_context
from fairlead_demo.stories import context as names_context
from fairlead_demo.worlds import name_servers
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet


async def test_without_a_dns_server_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(name_servers, "binary", lambda _: None)
    with pytest.raises(Terminal, match="apt-get install bind9"):
        await run_names_demo(DemoSettings(data_dir=tmp_path / "demo", plain=True))
    assert not (tmp_path / "demo").exists()


@pytest.mark.parametrize(("more", "made"), [(0, "web-default.east"), (8000, "web-default-gw.east")])
def test_a_gateway_replaces_an_ingress_without_low_ports(
    more: int, made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fleet_context, "service_port", lambda port: port + more)
    apis = EmbeddedApis(tmp_path, ("hub", "east", "west"))
    fleet = Fleet(apis=apis, directory=tmp_path, members={}, drain="1s", hub_options=("--domain", names_context.DOMAIN))
    context = names_context.NamesContext(fleet=fleet, apis=apis, console=Console(), plain=True)
    assert context.generated("east") == f"{made}.lb.example.test"
    assert context.generated("west") == "web-default-gw.west.lb.example.test"
    command = fleet.hub.command
    assert command[command.index("--domain") + 1] == "lb.example.test"
