"""The page without a mouse and without eyes: names and roles, the order of the focus, contrast."""

from __future__ import annotations

import itertools

import pytest
from page_world import Fleet, served

from fairlead.page.routes import Chain, ChainColumn, ChainNode, RouteRow
from fairlead.page.tables import (
    BackendItem,
    CertificateItem,
    ClassItem,
    ConditionItem,
    Detail,
    GroupItem,
    HeldItem,
    HubItem,
    MemberShareItem,
    NameItem,
    PlanItem,
    PlanRow,
    PoolItem,
    RegionItem,
    SharedItem,
    ZoneItem,
)
from fairlead.page.timeline import EventItem, EventKind
from fairlead.status.fleet import Trouble
from tests.fleet_objects import GOOD, condition

pytestmark = [pytest.mark.slow, pytest.mark.req("OP-10")]

OPEN = "TCPLoadBalancer/tenant-east/shop.bad"
VIEWS = (f"load-balancers/{OPEN}", "fleet", "plan", "regions", "members", "proxies", "names")
SHOWN = "document.querySelector('main > section:not([hidden]) :is(.why, .events)')"
AT = "2029-12-31T00:00:00Z"
NOT_HEALTHY = (
    "none is healthy; does a process listen on the port, and can the hub's proxies reach it? See which: "
    "fairlead explain tcplb/tenant-east/shop.bad. To connect to each from the hub's machine: fairlead doctor --connect"
)
STATES = ("Serving", "Idle", "NeedsAttention", "NotKnownYet", "NotServing")
#: Text that is shown with less contrast than WCAG 2.2 asks for (AA).
FAINT = """(() => {
  const parts = (text) => [...text.match(/[\\d.]+/g).map(Number), 1].slice(0, 4);
  const light = ([r, g, b]) => [r, g, b].map((value) => value / 255)
    .map((value) => value <= .03928 ? value / 12.92 : ((value + .055) / 1.055) ** 2.4)
    .reduce((sum, value, at) => sum + value * [.2126, .7152, .0722][at], 0);
  const behind = (element) => {
    for (let each = element; each; each = each.parentElement) {
      const colour = parts(getComputedStyle(each).backgroundColor);
      if (colour[3] === 1) return colour;
    }
    return [255, 255, 255, 1];
  };
  return [...document.querySelectorAll('body *')]
    .filter((each) => each.checkVisibility())
    .filter((each) => [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim()))
    .map((each) => {
      const [a, b] = [light(parts(getComputedStyle(each).color)), light(behind(each))].sort((x, y) => y - x);
      return [(a + .05) / (b + .05), each.className, each.textContent.slice(0, 40)];
    }).filter(([ratio]) => ratio < 4.5);
})()"""
FOCUSED = "((now) => now.getAttribute('aria-label') ?? (now.id || now.textContent))(document.activeElement)"


def full() -> Fleet:
    """Return a fleet that has something of everything that the page shows."""
    fleet = Fleet()
    why = ("it is not well; what helps: fairlead status",)
    fleet.agent_age_s = 100.0
    fleet.put("bad", *GOOD, condition("Serving", "False", "NoHealthyTargets", "none is healthy"))
    fleet.put("new", *GOOD, condition("Serving", "Unknown", "Pending", "not checked yet"))
    fleet.put("odd", *GOOD, condition("Drifted", "True", "Drifted", "1 was changed"))
    fleet.put("web", *GOOD)
    rows = (
        PlanRow("Drain", "a", "Absent", "Paused", "it is paused"),
        PlanRow("Update", "b", "New", fields=(("weight", "1", "2"),)),
    )
    fleet.plans["p"] = PlanItem(
        id=OPEN,
        title="east/shop/bad",
        provider="envoy",
        rows=rows,
        held=1,
        command="fairlead plan x",
        state="NeedsAttention",
        problems=why,
    )
    for state in STATES:
        said = why if state in STATES[2:] else ()
        fleet.regions[state] = RegionItem(
            id=state, state=state, problems=said, namespace="n", service=state, region="r", reason="R"
        )
        fleet.shared[state] = SharedItem(id=state, state=state, problems=said, service=state, exported_by=("east",))
        fleet.names[state] = NameItem(id=state, state=state, problems=said, host=state)
        fleet.certificates[state] = CertificateItem(
            id=state, state=state, problems=said, namespace="n", hosts=(state,), step="Issued", ends=AT
        )
        fleet.routes[state] = RouteRow(
            id=f"Ingress/tenant-east/shop/{state}", state=state, problems=said, kind="Ingress",
            namespace="tenant-east", title=f"ingress/east/shop/{state}", reason="R", hosts="shop.example.com",
        )  # fmt: skip
        fleet.events[state] = EventItem(state, AT, EventKind.HEALTH, state, f"east/shop/{state}", "it is so", OPEN, 2)
    fleet.events["f"] = EventItem("f", AT, EventKind.FAILOVER, "Serving", "machine m", "took 192.0.2.9 over")
    fleet.zones["z"] = ZoneItem(id="z", zone="example.com", provider="rfc2136", dry_run=True)
    fleet.pools["p"] = PoolItem(id="p", addresses=("192.0.2.0/28",), reserved=1, outside=1)
    fleet.classes["c"] = ClassItem(id="c", provider="haproxy", state="NeedsAttention", problems=why)
    fleet.groups["g"] = GroupItem(id="g", load_balancers=("a",))
    fleet.hub = HubItem(id="hub-1", leading=True, version="1", started="", problems=("zones: not read yet",))
    fleet.details[OPEN] = Detail(
        id=OPEN,
        providers=[],
        history=[],
        conditions=[ConditionItem("Serving", "False", "R", "message", AT)],
        chain=Chain(
            tuple(
                ChainColumn(state, (ChainNode(state, f"part {state}", state, "a note"),), more=1) for state in STATES
            ),
            tuple(itertools.pairwise(STATES)),
        ),
        held=[HeldItem("Drain a", "Paused", "it is paused")],
        members=[MemberShareItem("east", "shop/web", "60%", 0, "2/2", state, state, "a note", AT) for state in Trouble],
        backends=[
            BackendItem("TCP/80", f"10.0.0.{number}:80", "Pod/a/b", state, AT, "why")
            for number, state in enumerate(("Served", "Unhealthy", "Draining", "Pending"))
        ],
    )
    return fleet


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
async def test_text_contrasts_with_its_background(browser, dark):
    async with served(full()) as server:
        await browser.dark(on=dark)
        for view in VIEWS:
            await browser.open(f"{server.url}/#/{view}")
            await browser.until(SHOWN, f"{view} is shown")
            assert await browser.js(FAINT) == [], view
    await browser.until("!document.querySelector('#connection').hidden", "the hub is gone")
    assert await browser.js(FAINT) == []


async def test_what_can_be_reached_has_a_name_and_each_cell_says_what_it_is(browser):
    async with served(full()) as server:
        await browser.call("Accessibility.enable")
        for view in VIEWS:
            await browser.open(f"{server.url}/#/{view}")
            await browser.until(SHOWN, f"{view} is shown")
            nodes = (await browser.call("Accessibility.getFullAXTree"))["nodes"]
            named = {
                (node["role"]["value"], node.get("name", {}).get("value", "")) for node in nodes if not node["ignored"]
            }
            wanted = {
                "button",
                "link",
                "textbox",
                "searchbox",
                "grid",
                "gridcell",
                "row",
                "table",
                "region",
                "navigation",
            }
            assert {role for role, name in named if not name and role in wanted} <= {"row"}, view
            assert ("navigation", "Views") in named
        await browser.open(f"{server.url}/#/load-balancers")
        await browser.until("document.querySelectorAll('#grid .row').length === 9", "rows are shown")
        nodes = (await browser.call("Accessibility.getFullAXTree"))["nodes"]
        cells = [node["name"]["value"] for node in nodes if node.get("role", {}).get("value") == "gridcell"]
        assert cells[:4] == [
            "Load balancer or route: east/shop/bad, eu · envoy",
            f"State: does not serve: NoHealthyTargets: {NOT_HEALTHY}",
            "Address: 127.200.0.1",
            "Backends: 2/3",
        ]


async def test_the_focus_goes_from_the_views_to_what_is_shown_in_the_order_of_the_page(browser):
    async with served(full()) as server:
        await browser.open(f"{server.url}/#/load-balancers/{OPEN}")
        await browser.until("document.querySelector('#detail table')", "the details are shown")
        await browser.js("document.activeElement.blur()")
        reached = []
        for _ in range(19):
            await browser.press("Tab")
            reached.append(await browser.js(FOCUSED))
        assert reached[:9] == [
            "Skip to content",
            "Load balancers, 6 with a problem",
            "Fleet",
            "Plan, 1 held",
            "Regions, 3 with a problem",
            "Members, 4 with a problem",
            "Classes and proxies, 1 with a problem",
            "Names and certificates, 6 with a problem",
            "Colours: system setting",
        ]
        assert reached[9:14] == ["2 not serving", "2 not known yet", "2 with a problem", "2 serving", "1 idle"]
        assert reached[14:17] == ["search", "Load balancers and routes", "Close the details"]
        assert reached[17].startswith("Copy: ")
