"""Which kind gives the first member its address, and what its traffic and the commands to try are called."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

from fairlead_demo.stories import context as fleet_context
from fairlead_demo.stories import web
from fairlead_demo.worlds.apis import EmbeddedApis
from fairlead_demo.worlds.fleet import Fleet
from fairlead_demo.worlds.traffic import Traffic


@pytest.fixture
def apis(tmp_path: Path) -> EmbeddedApis:
    return EmbeddedApis(tmp_path, ("hub", "east", "west"))


def stage_of(apis: EmbeddedApis, directory: Path) -> web.WebContext:
    fleet = Fleet(apis=apis, directory=directory, members={"east": "Pod", "west": "Pod"}, drain="1s")
    return web.WebContext(fleet=fleet, apis=apis, console=Console(), plain=True)


@pytest.mark.parametrize(("more", "kind"), [(0, "Ingress"), (8000, "Gateway")])
def test_a_gateway_replaces_an_ingress_without_low_ports(
    more: int, kind: str, apis: EmbeddedApis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (fleet_context, web):
        monkeypatch.setattr(module, "service_port", lambda port: port + more)
    context = stage_of(apis, tmp_path)
    assert [context.title(member) for member in ("east", "west")] == [
        f"east {kind} default/web",
        "west Gateway default/web",
    ]
    context.traffics[context.title("east")] = Traffic(host="127.1.2.3", port=443 + more)
    assert any(
        f"curl --insecure --resolve shop.example.com:{443 + more}:127.1.2.3" in line for line in context.commands()
    )


def test_answers_are_counted_by_service(apis: EmbeddedApis, tmp_path: Path) -> None:
    context = stage_of(apis, tmp_path)
    traffic = context.traffics[context.title("west")] = Traffic(host="127.1.2.3", port=443)
    traffic.count.by_pod.update({"stable-west-1": 3, "stable-west-2": 4, "canary-west-1": 2})
    assert (context.answers("west", "stable"), context.answers("west", "canary")) == (7, 2)
