"""The place of external routes, and the files for a daemon that runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.announce.external import external_speaker
from fairlead.announce.routes import AnnouncedRoute
from fairlead.errors import BadConfiguration, Retry
from fairlead.model.machine import BgpAttributes

ROUTES = [
    AnnouncedRoute("192.0.2.1/32", BgpAttributes(communities=("65000:1",), med=3, prepend=2, peers=("x",))),
    AnnouncedRoute("2001:db8::1/128"),
]


@pytest.mark.req("P-26")
@pytest.mark.parametrize("text", ["", "table:", "table:0", "table:254", "table:main", "include:fairlead", "frr"])
def test_a_wrong_place_is_refused(text) -> None:
    with pytest.raises(BadConfiguration, match="table:"):
        external_speaker(text)


@pytest.mark.req("P-26")
async def test_files_change_only_with_their_routes(tmp_path: Path) -> None:
    marker = tmp_path / "reloads"
    speaker = external_speaker(f"include:{tmp_path}/routes,sh -c 'echo x >> {marker}'")
    assert await speaker.adopted() is None
    await speaker.apply((), ROUTES)
    await speaker.apply((), ROUTES)
    assert marker.read_text() == "x\n"
    assert (tmp_path / "routes.ipv4").read_text().splitlines()[1:] == [
        "route 192.0.2.1/32 unreachable { bgp_community.add((65000, 1)); bgp_med = 3; };"
    ]
    assert await speaker.adopted() == ["192.0.2.1/32", "2001:db8::1/128"]
    await speaker.stop()
    assert await speaker.adopted() is None


@pytest.mark.req("P-26")
async def test_a_command_that_fails_is_run_again(tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    speaker = external_speaker(f"include:{tmp_path}/routes,cat {flag}")
    with pytest.raises(Retry, match="cat"):
        await speaker.apply((), ROUTES)
    flag.touch()
    await speaker.apply((), ROUTES)
