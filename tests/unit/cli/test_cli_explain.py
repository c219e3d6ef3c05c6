"""What ``explain`` says where it cannot answer: which API it was given, and which one it needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_api import api, fill

from fairlead.cli.explain import history_of, present_of
from fairlead.cli.options import HubApi
from fairlead.cli.selection import selection_of
from fairlead.errors import NotServed
from fairlead.status.object_ref import parse_object_ref


@pytest.mark.parametrize(
    ("subject", "events"),
    [("svc/web", True), ("ingress/shop", True), ("lb/shared", False), ("east/default/web", False)],
)
async def test_a_member_has_no_histories(subject: str, events: bool, tmp_path: Path) -> None:
    async with api(tmp_path, kinds=False) as (member, kubeconfig):
        ref = parse_object_ref(subject, sharing=True)
        with pytest.raises(NotServed) as raised:
            await history_of(ref, HubApi(kubeconfig), "", None)
        said = raised.value.sentence
        assert said.startswith(f"The history of {ref.title} is at the hub, and {member.server} is not a hub: give the")
        assert ("without --history the Events of it in this member are shown" in said) is events


async def test_at_a_hub_everything_selected_is_explained(tmp_path: Path) -> None:
    async with api(tmp_path) as (hub, kubeconfig):
        await fill(hub)
        answer = await present_of(selection_of("", "default", ""), HubApi(kubeconfig))
        assert list(answer.names()) == [f"TCPLoadBalancer/tenant-{member}/default.web" for member in ("east", "west")]
        assert any("provider envoy" in line for line in answer.lines())
