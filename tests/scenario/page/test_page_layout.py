"""What the page shows can be read: columns under their heads, whole addresses, whole words, and no dead links."""

from __future__ import annotations

import msgspec
import pytest
from page_world import Fleet, served

from fairlead.page.tables import CertificateItem, NameItem, PoolItem, RegionItem
from tests.fleet_objects import GOOD

pytestmark = [pytest.mark.slow, pytest.mark.req("OP-10")]

ROWS = "[...document.querySelectorAll('#grid .row')]"
#: Cells of the first row that are shown, with their distance from the head, and whether their text is cut.
CELLS = f"""(() => {{
  const heads = [...document.querySelectorAll('#head > *')];
  return [...{ROWS}[0].children].map((cell, at) => [cell, heads[at]]).filter(([cell]) => cell.offsetParent)
    .map(([cell, head]) => ({{name: head.textContent, text: cell.textContent, cut: cell.scrollWidth > cell.clientWidth,
      off: Math.abs(cell.getBoundingClientRect().left - head.getBoundingClientRect().left)}}));
}})()"""


POOL = "tr[data-id=lab-1]"
#: How many lines the text of an element takes.
LINES = (
    "(element) => { const range = document.createRange(); range.selectNodeContents(element);"
    " return new Set([...range.getClientRects()].map((rect) => Math.round(rect.top))).size }"
)


#: What of the page is to the right of the window; the heads that a narrow one hides are not.
OUTSIDE = """[...document.querySelectorAll('header *, main *')]
  .filter((each) => each.checkVisibility() && !each.closest('.away, thead'))
  .filter((each) => each.getBoundingClientRect().right > innerWidth + 1).map((each) => each.textContent.slice(0, 40))"""


async def sized(browser, width: int) -> None:
    await browser.call("Emulation.setDeviceMetricsOverride", width=width, height=800, deviceScaleFactor=1, mobile=False)


@pytest.mark.parametrize("count", [3, 300])
@pytest.mark.parametrize("width", [390, 1280])
async def test_columns_stand_under_their_heads_and_backends_and_addresses_are_whole(browser, width, count):
    fleet = Fleet()
    fleet.add(count)
    for name, lb in fleet.load_balancers.items():
        status = msgspec.structs.replace(lb.status, targets="12/13 healthy", address="127.200.228.162")
        fleet.load_balancers[name] = msgspec.structs.replace(lb, status=status)
    await sized(browser, width)
    async with served(fleet) as server:
        await browser.open(server.url)
        await browser.until(f"{ROWS}.length > 2", "rows are shown")
        cells = {each["name"]: each for each in await browser.js(CELLS)}
        # A narrow window has no heads: a row is two lines.
        assert width == 390 or {name for name, each in cells.items() if each["off"] > 1} == set()
        assert {name for name, each in cells.items() if each["cut"]} <= {"Load balancer or route", "State"}
        assert cells["Backends"]["text"] == "12/13"


@pytest.mark.parametrize("width", [1085, 1280])
async def test_an_address_is_complete_next_to_the_details(browser, width):
    fleet = Fleet()
    fleet.add(3)
    await sized(browser, width)
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/load-balancers/TCPLoadBalancer/tenant-east/shop.s1")
        await browser.until("document.querySelector('#detail dl')", "the details are shown")
        await browser.js(f"{ROWS}.forEach((row) => row.children[2].textContent = '127.200.228.162')")
        cells = {each["name"]: each for each in await browser.js(CELLS)}
        assert cells["Address"]["cut"] is False
        assert cells["Backends"]["cut"] is False
        boxes = "[...document.querySelectorAll('#head, #grid, #detail')]"
        assert await browser.js(f"{boxes}.filter((box) => box.scrollWidth > box.clientWidth).length") == 0


@pytest.mark.parametrize("width", [390, 800, 1100, 1400])
async def test_the_button_for_colours_is_next_to_the_title(browser, width):
    fleet = Fleet()
    await sized(browser, width)
    async with served(fleet) as server:
        await browser.open(server.url)
        await browser.until("document.querySelector('#hub').textContent.includes('1.2.3')", "the hub is named")
        await browser.js("document.querySelector('#hub').textContent = 'Hub vm-27f42143-of-a-long-name leads · 0.2.0'")
        place = "document.querySelector('{}').getBoundingClientRect()"
        title, button = place.format("h1"), place.format("#theme")
        assert await browser.js(f"{button}.top < {title}.bottom && {button}.right <= innerWidth") is True


async def test_no_word_of_a_table_is_broken_where_there_is_room(browser):
    fleet = Fleet()
    why = "pool lab-1: spec.addresses: " + "'10.0.0.0/33' is not a CIDR such as 192.0.2.0/24 or 2001:db8:1::/64, " * 4
    fleet.pools["lab-1"] = PoolItem(
        id="lab-1", addresses=("10.0.0.9-10.0.0.1",), state="NeedsAttention", problems=(why,)
    )
    await sized(browser, 1280)
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/proxies")
        await browser.until(f"document.querySelector('{POOL} .why')", "the pool is shown")
        broken = await browser.js(
            f"[...document.querySelectorAll('#view-proxies thead th, {POOL} > th, {POOL} > .mono')]"
            f".filter((cell) => ({LINES})(cell) > 1).map((cell) => cell.textContent)"
        )
        assert broken == []


@pytest.mark.parametrize("width", [360, 720, 900, 1400])
async def test_the_page_fits_the_window_with_long_sentences(browser, width):
    fleet = Fleet()
    long = "a-name-that-a-program-has-made-" * 4
    why = (f"region north of shop/{long}: none of 3 targets is healthy; " * 2,)
    for service in ("web", long):
        fleet.regions[service] = RegionItem(
            id=service, namespace="shop", service=service, region="hangzhou", class_name="fairlead.dev/envoy",
            address="2001:db8:1234:5678:9abc:def0:1234:5678", reason="Drifted", state="NeedsAttention", problems=why,
        )  # fmt: skip
        fleet.names[service] = NameItem(
            id=service, host=f"{service}.example.com", zone="example", points_to=("192.0.2.1",)
        )
        fleet.certificates[service] = CertificateItem(
            id=service, namespace="t", hosts=(service,), issuer="letsencrypt", step="Failing", state="NotServing",
            ends="2030-01-01T00:00:00Z", problems=why,
        )  # fmt: skip
    await sized(browser, width)
    async with served(fleet) as server:
        for view, whole in (("regions", ["hangzhou", "Backends"]), ("names", ["example", "letsencrypt"])):
            await browser.open(f"{server.url}/#/{view}")
            await browser.until(f"document.querySelector('#view-{view} .why')", "the rows are shown")
            assert await browser.js(OUTSIDE) == [], view
            wanted = "[...document.querySelectorAll('main td, main th')].filter((cell) => cell.textContent === {!r})"
            for word in whole:
                cells = wanted.format(word)
                assert await browser.js(f"{cells}.length") > 0, word
                # A narrow window has the head of a column before each value, in a line of its own or the same.
                if width > 880:
                    assert await browser.js(f"Math.max(...{cells}.map({LINES}))") == 1, word


async def test_a_link_to_a_deleted_load_balancer_names_the_history_command(browser):
    fleet = Fleet()
    fleet.add(2)
    shown = "TCPLoadBalancer/tenant-east/shop.s1"
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/load-balancers/{shown}")
        await browser.until("document.querySelector('#detail dl')", "the details are shown")
        del fleet.load_balancers["s1"]
        fleet.mark("lb", "s1")
        await browser.until("document.querySelector('#detail .why')", "its end is said where it was looked at")
        assert f"{shown} was deleted" in await browser.text("#detail .why p")
        assert await browser.text("#detail .why code") == f"fairlead explain {shown} --history"
        fleet.put("s1", *GOOD)
        await browser.until("document.querySelector('#detail dl')", "it is shown again once it is there again")


async def test_a_page_without_its_hub_says_since_when(browser):
    fleet = Fleet()
    async with served(fleet) as server:
        await browser.open(server.url)
        await browser.until("document.querySelector('#hub').textContent.includes('leads')", "it is connected")
    await browser.until("!document.querySelector('#connection').hidden", "the hub is gone")
    assert "The data shown is from " in await browser.text("#connection")


async def test_an_empty_fleet_says_the_next_step(browser):
    fleet = Fleet()
    async with served(fleet) as server:
        empty = "document.querySelector('#grid').dataset.empty"
        await browser.open(server.url)
        await browser.until(f"{empty}.includes('Service of type LoadBalancer')", "with a member, a Service is next")
        fleet.tenants.clear()
        fleet.mark("member", "east")
        await browser.until(f"{empty}.includes('fairlead tenant add')", "without one, a member is")
