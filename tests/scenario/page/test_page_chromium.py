"""A real Chromium clicks through the page: thousands of load balancers, changes while looked at, keys, colours."""

from __future__ import annotations

import msgspec
import pytest
from page_world import Fleet, served

from fairlead.page.tables import Detail, MachineItem, PlanItem, PlanRow, PoolItem, RegionItem, ZoneItem
from fairlead.status.machines import AnnouncedRow
from fairlead_demo.worlds.loopback import free_port
from tests.fleet_objects import GOOD, condition

pytestmark = pytest.mark.slow

UNHEALTHY = condition("Serving", "False", "NoHealthyTargets", "none of 3 targets is healthy")
ROWS = "[...document.querySelectorAll('#grid .row')]"
FIRST = f"{ROWS}.find((row) => row.getAttribute('aria-rowindex') === '1')"


async def opened(browser, server):
    await browser.open(server.url)
    await browser.until(f"{ROWS}.length > 3", "rows are shown")


@pytest.mark.req("OP-10")
async def test_thousands_of_load_balancers_a_change_and_its_explanation(browser):
    fleet = Fleet()
    fleet.add(5000)
    async with served(fleet) as server:
        await opened(browser, server)
        assert await browser.js("document.querySelector('#grid').getAttribute('aria-rowcount')") == "5000"
        # Only what is in view are elements.
        assert await browser.js(f"{ROWS}.length") < 100
        fleet.put("s4321", *GOOD, UNHEALTHY)
        await browser.until(f"{FIRST}.innerText.includes('east/shop/s4321')", "what does not serve comes first")
        await browser.until("document.querySelector('#said').textContent.includes('s4321')", "it is announced")
        await browser.click("#grid .row[aria-rowindex='1']")
        await browser.until("document.querySelector('#detail .why')", "it is explained")
        assert "none of 3 targets is healthy" in await browser.text("#detail .why p")
        assert await browser.text("#detail .why code") == "fairlead explain tcplb/tenant-east/shop.s4321"
        fleet.put("s4321", *GOOD)
        await browser.until("!document.querySelector('#detail .why')", "the explanation goes with the trouble")
        del fleet.load_balancers["s4321"]
        fleet.mark("lb", "s4321")
        await browser.until("document.querySelector('#grid').getAttribute('aria-rowcount') === '4999'", "it is gone")
        foreign = [url for url in browser.requests if not url.startswith((server.url, "about:", "data:"))]
        assert foreign == []


@pytest.mark.req("OP-10")
async def test_a_member_dies_while_it_is_looked_at_and_the_hub_restarts(browser):
    fleet, port = Fleet(), free_port()
    fleet.add(3)
    async with served(fleet, port=port) as server:
        await browser.open(f"{server.url}/#/members")
        await browser.until("document.querySelector('tr[data-id=east]').innerText.includes('Engaged')", "it is heard")
        fleet.agent_age_s = 100.0
        fleet.mark("member", "east")
        await browser.until("document.querySelector('tr[data-id=east] .why')", "its silence is explained")
        assert "last reported 100s ago" in await browser.text("tr[data-id=east] .why p")
    await browser.until("!document.querySelector('#connection').hidden", "the page says that the hub is gone")
    fleet.agent_age_s = 1.0
    async with served(fleet, port=port):
        await browser.until("document.querySelector('#connection').hidden", "the page is connected again")
        await browser.until("!document.querySelector('tr[data-id=east] .why')", "it shows the state of now")


@pytest.mark.req("OP-10")
async def test_the_plan_says_what_is_held_and_how_that_ends(browser):
    fleet = Fleet()
    fleet.add(2)
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/plan")
        await browser.until("document.querySelector('#view-plan .empty')", "nothing waits")
        assert await browser.js("document.querySelector('nav a[href$=plan] .badge').hidden") is True
        resume = "TCPLoadBalancer/tenant-east/shop.s1 is paused, apply the held changes with: fairlead resume tcplb/x"
        fleet.plans["p"] = PlanItem(
            id="TCPLoadBalancer/tenant-east/shop.s1", state="NeedsAttention", title="east/shop/s1", provider="envoy",
            rows=(PlanRow("Drain", "TCP/80 10.0.0.1:8080", "Absent: not listed any more", "Paused", resume),
                  PlanRow("Register", "TCP/80 10.0.0.2:8080", "New", fields=(("weight", "", "1"),))),
            held=1, command="fairlead plan tcplb/shop.s1 -n tenant-east",
        )  # fmt: skip
        fleet.mark("plan", "p")
        await browser.until("document.querySelectorAll('#view-plan tbody tr').length === 2", "both rows are shown")
        assert await browser.text("nav a[href$=plan] .badge") == "1"
        held = await browser.text("#view-plan tbody tr")
        assert "Drain, held" in held
        assert "Held by Paused: TCPLoadBalancer/tenant-east/shop.s1 is paused" in held
        assert await browser.text("#view-plan tbody code") == "fairlead resume tcplb/x"
        assert "weight: - → 1" in await browser.text("#view-plan tbody tr:nth-child(2)")
        assert await browser.text("#view-plan .plan > .command code") == "fairlead plan tcplb/shop.s1 -n tenant-east"
        # What changes elsewhere leaves the focus, and a selection, as they are.
        await browser.js(
            "document.querySelector('#view-plan tbody button').focus(); window.kept = document.activeElement"
        )
        fleet.put("s0", *GOOD, UNHEALTHY)
        fleet.mark("lb", "s0")
        await browser.until("document.querySelector('#said').textContent.includes('s0')", "the change has come")
        assert await browser.js("document.activeElement === window.kept") is True
        del fleet.plans["p"]
        fleet.mark("plan", "p")
        await browser.until("document.querySelector('#view-plan .empty')", "it is done")
    assert browser.errors == [] or all("ERR_" in error for error in browser.errors), browser.errors


@pytest.mark.req("OP-10")
async def test_regions_of_a_service_stand_together(browser):
    fleet = Fleet()
    for region, state in (("hangzhou", "Serving"), ("beijing", "NotServing")):
        fleet.regions[region] = RegionItem(
            id=f"default/web-{region}", state=state, namespace="default", service="web", region=region,
            reason="Pending" if state == "NotServing" else "Programmed", address="10.1.0.9",
            problems=("region beijing of default/web: Pending",) if state == "NotServing" else (),
        )  # fmt: skip
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/regions")
        await browser.until("document.querySelectorAll('#view-regions tbody tr').length === 2", "both are shown")
        rows = await browser.text("#view-regions tbody")
        assert rows.index("beijing") < rows.index("hangzhou")
        assert "region beijing of default/web: Pending" in rows
        assert await browser.js("document.querySelectorAll('#view-regions tr.same').length") == 1


MACHINE = MachineItem(
    id="edge-1", group="default", ready="Ready", announcing="Announcing", announced=12, addresses=("192.0.2.9",),
    envoy="1.38.0", since="2029-12-31T00:00:00Z",
)  # fmt: skip
ANNOUNCED = [
    AnnouncedRow(
        "192.0.2.9", ["edge-1"], "2029-12-31T00:00:00Z", "edge-2 is silent", macs=["02:00:00:00:00:01"],
        failover_time="2029-12-31T00:00:00Z", failover_cause="edge-2 is silent",
    ),
    AnnouncedRow("2001:db8::9", [], problem="no session with a router is up"),
]  # fmt: skip


@pytest.mark.req("OP-10", "P-27")
async def test_machines_and_who_announces_an_address(browser):
    fleet = Fleet()
    fleet.add(4)
    fleet.machines["edge-1"] = MACHINE
    key = "TCPLoadBalancer/tenant-east/shop.s1"
    fleet.details[key] = Detail(id=key, conditions=[], providers=[], history=[], announced=ANNOUNCED)
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/proxies")
        await browser.until("document.querySelector('tr[data-id=edge-1]')", "the machine is shown")
        row = await browser.text("tr[data-id=edge-1]")
        assert all(part in row for part in ("edge-1", "default", "Ready, for", "192.0.2.9", "and 11 more", "1.38.0"))
        headers = "[...document.querySelectorAll('#title-machines + .card thead th[scope=col]')]"
        assert await browser.js(f"{headers}.map((each) => each.textContent)") == [
            *("Machine", "Group", "State", "Announcing", "Addresses", "Envoy")
        ]
        assert await browser.js("document.querySelector('tr[data-id=edge-1] th').scope") == "row"
        why = "machine edge-1: Envoy does not run"
        fleet.machines["edge-1"] = msgspec.structs.replace(MACHINE, state="NeedsAttention", problems=(why,))
        fleet.mark("machine", "edge-1")
        await browser.until("document.querySelector('tr[data-id=edge-1] .why')", "its fault is explained")
        assert await browser.text("nav a[href$=proxies] .badge") == "1"
        await browser.open(f"{server.url}/#/load-balancers/{key}")
        captions = "[...document.querySelectorAll('#detail caption')]"
        await browser.until(f"{captions}.some((each) => each.textContent.includes('machines'))", "its addresses")
        text = await browser.text("#detail")
        assert all(part in text for part in ("edge-1 at 02:00:00:00:00:01", "last failover", "edge-2 is silent"))
        assert "no session with a router is up" in text


@pytest.mark.req("OP-10")
async def test_pools_and_zones_say_how_much_is_left_and_what_is_wrong(browser):
    fleet = Fleet()
    fleet.pools["edge"] = PoolItem(id="edge", addresses=("192.0.2.0/28", "2001:db8::/120"), size=14, used=3, reserved=2)
    fleet.zones["lab"] = ZoneItem(id="lab", zone="lab.example.com", provider="rfc2136", server="127.0.0.1:53", names=4)
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/proxies")
        await browser.until("document.querySelector('#view-proxies tr[data-id=edge]')", "the pool is shown")
        row = await browser.text("#view-proxies tr[data-id=edge]")
        assert "192.0.2.0/28, 2001:db8::/120" in row
        assert "3 of 14" in row
        assert "2 reserved" in row
        why = "pool edge: all its addresses are used or reserved: add to spec.addresses"
        fleet.pools["edge"] = msgspec.structs.replace(
            fleet.pools["edge"], used=12, state="NeedsAttention", problems=(why,)
        )
        fleet.mark("pool", "edge")
        await browser.until("document.querySelector('tr[data-id=edge] .why')", "it is used up while it is looked at")
        assert why in await browser.text("tr[data-id=edge] .why p")
        await browser.open(f"{server.url}/#/names")
        await browser.until("document.querySelector('#view-names tr[data-id=lab]')", "the zone is shown")
        row = await browser.text("#view-names tr[data-id=lab]")
        assert all(part in row for part in ("lab.example.com", "rfc2136", "127.0.0.1:53", "is up to date", "4"))
        del fleet.zones["lab"]
        fleet.mark("zone", "lab")
        await browser.until("document.querySelector('#view-names').innerText.includes('No DNSZone')", "it is gone")


@pytest.mark.req("OP-10")
async def test_with_keys_alone_and_in_both_colours(browser):
    fleet = Fleet()
    fleet.add(300)
    async with served(fleet) as server:
        await opened(browser, server)
        await browser.press("/")
        await browser.until("document.activeElement.id === 'search'", "the search has the focus")
        await browser.press("s", "2", "9", "9")
        await browser.until("document.querySelector('#grid').getAttribute('aria-rowcount') === '1'", "it is found")
        await browser.press("ArrowDown", "Enter")
        await browser.until("document.activeElement.id === 'detail-title'", "the focus is at what was opened")
        assert await browser.text("#detail-title") == "east/shop/s299"
        await browser.press("Escape")
        await browser.until("document.activeElement.id === 'grid'", "and comes back")
        await browser.js("document.querySelector('#search').value = ''; document.querySelector('#search')"
                         ".dispatchEvent(new Event('input'))")  # fmt: skip
        await browser.until("document.querySelector('#grid').getAttribute('aria-rowcount') === '300'", "all again")
        await browser.press("End")
        await browser.until(
            "document.getElementById(document.querySelector('#grid').getAttribute('aria-activedescendant'))"
            ".getAttribute('aria-rowindex') === '300'",
            "the last row is the active one, and is an element",
        )
        await browser.open("about:blank")
        await browser.open(f"{server.url}/#/load-balancers/TCPLoadBalancer/tenant-east/shop.s7")
        await browser.until("document.querySelector('#detail-title').innerText === 'east/shop/s7'", "a link opens it")
        chosen = "document.querySelector('#grid [aria-selected=true]').innerText.includes('east/shop/s7')"
        await browser.until(chosen, "and it is the chosen row, in view")
        colour = "getComputedStyle(document.body).backgroundColor"
        await browser.dark(on=False)
        light = await browser.until(colour, "light colours")
        await browser.dark(on=True)
        await browser.until(f"{colour} !== {light!r}", "dark colours")
    assert browser.errors == [] or all("ERR_" in error for error in browser.errors), browser.errors
