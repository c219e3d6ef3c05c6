"""A real Chromium clicks through the page: thousands of load balancers, changes while looked at, keys, colours."""

from __future__ import annotations

import pytest
from page_world import Fleet, board_of, served

from fairlead.testing.fleet_objects import GOOD, condition
from fairlead.testing.worlds.loopback import free_port

pytestmark = pytest.mark.slow

UNHEALTHY = condition("Serving", "False", "NoHealthyTargets", "none of its 3 targets is healthy")
ROWS = "[...document.querySelectorAll('#grid .row')]"
FIRST = f"{ROWS}.find((row) => row.getAttribute('aria-rowindex') === '1')"


async def opened(browser, server):
    await browser.open(server.url)
    await browser.until(f"{ROWS}.length > 3", "rows are shown")


@pytest.mark.req("OP-10")
async def test_thousands_of_load_balancers_a_change_and_its_explanation(browser):
    fleet = Fleet()
    fleet.add(5000)
    async with served(board_of(fleet)) as server:
        await opened(browser, server)
        assert await browser.js("document.querySelector('#grid').getAttribute('aria-rowcount')") == "5000"
        # Only what is in view are elements.
        assert await browser.js(f"{ROWS}.length") < 100
        fleet.put("s4321", *GOOD, UNHEALTHY)
        await browser.until(f"{FIRST}.innerText.includes('east/shop/s4321')", "what does not serve comes first")
        await browser.until("document.querySelector('#said').textContent.includes('s4321')", "it is announced")
        await browser.click("#grid .row[aria-rowindex='1']")
        await browser.until("document.querySelector('#detail .why')", "it is explained")
        assert "none of its 3 targets is healthy" in await browser.text("#detail .why p")
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
    async with served(board_of(fleet), port=port) as server:
        await browser.open(f"{server.url}/#/members")
        await browser.until("document.querySelector('tr[data-id=east]').innerText.includes('Engaged')", "it is heard")
        fleet.agent_age_s = 100.0
        fleet.mark("member", "east")
        await browser.until("document.querySelector('tr[data-id=east] .why')", "its silence is explained")
        assert "last heard 100s ago" in await browser.text("tr[data-id=east] .why p")
    await browser.until("!document.querySelector('#connection').hidden", "the page says that the hub is gone")
    fleet.agent_age_s = 1.0
    async with served(board_of(fleet), port=port):
        await browser.until("document.querySelector('#connection').hidden", "the page is connected again")
        await browser.until("!document.querySelector('tr[data-id=east] .why')", "it shows the state of now")


@pytest.mark.req("OP-10")
async def test_with_keys_alone_and_in_both_colours(browser):
    fleet = Fleet()
    fleet.add(300)
    async with served(board_of(fleet)) as server:
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
        colour = "getComputedStyle(document.body).backgroundColor"
        await browser.dark(on=False)
        light = await browser.until(colour, "light colours")
        await browser.dark(on=True)
        await browser.until(f"{colour} !== {light!r}", "dark colours")
    assert browser.errors == [] or all("ERR_" in error for error in browser.errors), browser.errors
