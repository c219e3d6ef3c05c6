"""What the page says is true: of now or of when, the same as `fairlead status` says, and each command can be pasted."""

from __future__ import annotations

import msgspec
import pytest
from page_world import Fleet, served

from fairlead.api.tcploadbalancer import Origin
from fairlead.page.tables import (
    BackendItem,
    CertificateItem,
    ClassItem,
    Detail,
    HubItem,
    NameItem,
    PlanItem,
    PlanRow,
    ProxyItem,
    RegionItem,
)
from tests.fleet_objects import GOOD, condition, http_load_balancer

pytestmark = [pytest.mark.slow, pytest.mark.req("OP-10")]

TITLES = "[...document.querySelectorAll('#grid .row .title')].map((cell) => cell.textContent).sort()"
COMMANDS = "[...document.querySelectorAll('{} code')].map((code) => code.textContent)"


def gateway(fleet: Fleet, name: str) -> None:
    """Give a Gateway shop/``name`` of the member east a load balancer."""
    lb = http_load_balancer(*GOOD)
    metadata = msgspec.structs.replace(
        lb.metadata, name=f"gateway.shop.{name}", annotations={"fairlead.dev/origin": f"east/shop/{name}"}
    )
    spec = msgspec.structs.replace(lb.spec, origin=Origin(kind="Gateway", namespace="shop", name=name))
    fleet.load_balancers["gateway"] = msgspec.structs.replace(lb, metadata=metadata, spec=spec)
    fleet.mark("lb", "gateway")


async def test_equal_names_of_two_kinds_are_shown_with_their_kind(browser):
    fleet = Fleet()
    fleet.add(2)
    fleet.plans["s1"] = PlanItem(
        id="TCPLoadBalancer/tenant-east/shop.s1", title="east/shop/s1", provider="envoy", command="fairlead plan x",
        rows=(PlanRow("Register", "TCP/80 10.0.0.2:8080", "New"),),
    )  # fmt: skip
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/load-balancers/TCPLoadBalancer/tenant-east/shop.s1")
        await browser.until("document.querySelector('#detail dl')", "the details are shown")
        gateway(fleet, "s1")
        await browser.until(f"{TITLES}.length === 3", "the Gateway is shown")
        assert await browser.js(TITLES) == ["east/shop/s0", "gateway/east/shop/s1", "svc/east/shop/s1"]
        await browser.js("document.querySelector('#search').value = 'svc/'; document.querySelector('#search')"
                         ".dispatchEvent(new Event('input'))")  # fmt: skip
        await browser.until("document.querySelector('#grid').getAttribute('aria-rowcount') === '2'", "it is searched")
        await browser.open(f"{server.url}/#/plan")
        await browser.until("document.querySelector('#view-plan h3 a')?.textContent === 'svc/east/shop/s1'", "so here")
        del fleet.load_balancers["gateway"]
        fleet.mark("lb", "gateway")
        await browser.until("document.querySelector('#view-plan h3 a').textContent === 'east/shop/s1'", "it is alone")


async def test_a_hub_that_is_lost_is_not_said_to_lead(browser):
    fleet = Fleet()
    async with served(fleet) as server:
        await browser.open(server.url)
        await browser.until("document.querySelector('#hub').textContent === 'Hub hub-1 leads · 1.2.3'", "it leads")
        assert await browser.js("document.querySelector('#trouble').hidden") is True
    await browser.until("!document.querySelector('#connection').hidden", "the hub is gone")
    await browser.until(
        "document.querySelector('#hub').textContent === 'Hub hub-1 is not connected · 1.2.3'", "so here"
    )


async def test_an_unready_hub_reports_why_and_a_missing_leader(browser):
    fleet = Fleet()
    why = "tenants: the API at https://10.0.0.1:6443 does not answer: connection refused"
    fleet.hub = HubItem(id="hub-2", leading=False, version="1.2.3", started="", problems=(why, "zones: not read yet"))
    async with served(fleet) as server:
        await browser.open(server.url)
        await browser.until("!document.querySelector('#trouble').hidden", "it is said")
        said = await browser.text("#trouble")
        assert "No hub leads" in said
        assert f"This hub is not ready: {why}" in said
        assert "This hub is not ready: zones: not read yet" in said
        fleet.hub = HubItem(id="hub-2", leading=False, leader="hub-1", version="1.2.3", started="")
        fleet.mark("hub", "hub-2")
        await browser.until("document.querySelector('#trouble').hidden", "another one leads")
        assert await browser.text("#hub") == "Hub hub-2 is on standby for hub-1 · 1.2.3"
        await browser.open(f"{server.url}/#/plan")
        await browser.until("document.querySelector('#view-plan .why')", "and what it does not know is said")
        assert "This hub is on standby" in await browser.text("#view-plan .why")


async def test_the_name_of_a_view_counts_what_is_not_well_in_it(browser):
    fleet = Fleet()
    fleet.add(1)
    why = ("it is not well",)
    fleet.proxies["p"] = ProxyItem(id="p", group="local", synced=False, state="NeedsAttention")
    fleet.classes["edge"] = ClassItem(id="edge", provider="haproxy", state="NeedsAttention", problems=why)
    fleet.certificates["c"] = CertificateItem(id="t/c", namespace="t", state="NotServing", problems=why)
    fleet.names["idle"] = NameItem(id="f/n", host="n.example.com", state="Idle")
    counts = "[...document.querySelectorAll('nav .badge')].map((badge) => badge.hidden ? 0 : Number(badge.textContent))"
    async with served(fleet) as server:
        await browser.open(server.url)
        await browser.until(f"String({counts}) === '0,0,0,0,0,2,1'", "what is not well is counted, what is idle is not")
        label = "document.querySelector('nav a[href$=names]').getAttribute('aria-label')"
        assert await browser.js(label) == "Names and certificates, 1 with a problem"
        assert await browser.js("document.querySelector('nav a[href$=names] .badge').classList.contains('bad')") is True
        fleet.put("s0", *GOOD, condition("Serving", "False", "NoHealthyTargets", "none is healthy"))
        await browser.until(f"String({counts}) === '1,0,0,0,0,2,1'", "a load balancer is, too")


@pytest.mark.parametrize(
    ("sentence", "commands"),
    [
        (
            "nothing is changed until fairlead resume tcplb/a -n b; 3 held: Drain 10.0.0.1:80",
            ["fairlead resume tcplb/a -n b"],
        ),
        (
            "A is paused, apply that with: fairlead resume A; B is paused, apply that with: fairlead resume B",
            ["fairlead resume A", "fairlead resume B"],
        ),
        ("no NodePool matches: `kubectl get nodepools -A` shows their labels", ["kubectl get nodepools -A"]),
        ("its key ends; write one with: fairlead tenant rotate a.", ["fairlead tenant rotate a"]),
        ("there is none; those that are: kubectl get lbc", ["kubectl get lbc"]),
    ],
)
async def test_each_command_of_a_sentence_can_be_copied_without_the_words_around_it(browser, sentence, commands):
    fleet = Fleet()
    fleet.classes["c"] = ClassItem(id="c", provider="haproxy", state="NeedsAttention", problems=(sentence,))
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/proxies")
        await browser.until("document.querySelector('#view-proxies .why')", "the sentence is shown")
        # A command at the end is not said twice.
        assert await browser.text("#view-proxies .why p") == sentence.removesuffix(f" {commands[0]}")
        assert await browser.js(COMMANDS.format("#view-proxies .why")) == commands


async def test_backends_are_followed_while_their_load_balancer_stays_as_it_is(browser):
    fleet = Fleet()
    fleet.add(1)
    shown = "TCPLoadBalancer/tenant-east/shop.s0"

    def detail(state: str) -> Detail:
        backend = BackendItem("TCP/80", "10.0.0.1:8080", "Pod/shop/web-1", state)
        return Detail(id=shown, conditions=[], providers=[], history=[], backends=[backend])

    fleet.details[shown] = detail("Served")
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/load-balancers/{shown}")
        await browser.until("document.querySelector('#detail table')?.innerText.includes('Served')", "it is served")
        assert (await browser.js(COMMANDS.format("#detail")))[-1] == "fairlead explain tcplb/tenant-east/shop.s0"
        await browser.js("window.kept = document.querySelector('#detail table')")
        fleet.details[shown] = detail("Draining")
        await browser.until("document.querySelector('#detail table').innerText.includes('Draining')", "it drains")
    await browser.until("!document.querySelector('#connection').hidden", "the hub is gone")
    assert "Draining" in await browser.text("#detail table")


async def test_a_region_that_is_not_well_is_drawn_though_hundreds_come_before_it(browser):
    fleet = Fleet()
    for number in range(400):
        fleet.regions[str(number)] = RegionItem(
            id=f"shop/a{number}-north", namespace="shop", service=f"a{number}", region="north", reason="Programmed"
        )
    bad = RegionItem(id="shop/z-north", namespace="shop", service="z", region="north", state="NotServing", reason="Bad")
    fleet.regions["z"] = bad
    fleet.regions["z2"] = RegionItem(id="shop/z-east", namespace="shop", service="z", region="east")
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/regions")
        await browser.until("document.querySelectorAll('#view-regions tbody tr').length === 300", "300 are drawn")
        first = "[...document.querySelectorAll('#view-regions tbody tr')].slice(0, 2).map((row) => row.dataset.id)"
        assert await browser.js(first) == ["shop/z-east", "shop/z-north"]
        assert "and 102 more" in await browser.text("#view-regions .rest")


async def test_a_name_that_is_not_published_is_not_said_to_serve(browser):
    fleet = Fleet()
    fleet.names["here"] = NameItem(id="here", host="here.example.com", zone="z", published=True)
    fleet.names["soon"] = NameItem(id="soon", host="soon.example.com", zone="z", state="Idle")
    fleet.names["nowhere"] = NameItem(id="nowhere", host="nowhere.example.com", state="Idle")
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/names")
        await browser.until("document.querySelectorAll('#view-names tr[data-id]').length === 3", "all are shown")
        state = "document.querySelector('tr[data-id={}] .state').textContent"
        states = {each: await browser.js(state.format(each)) for each in fleet.names}
        assert states == {
            "here": "is published", "soon": "is not published yet", "nowhere": "is in no zone; no record is written",
        }  # fmt: skip


async def test_the_key_for_the_search_works_in_each_view(browser):
    fleet = Fleet()
    fleet.add(3)
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/plan")
        await browser.until("document.querySelector('#view-plan .empty')", "the plan is shown")
        await browser.press("/")
        await browser.until(
            "document.activeElement.id === 'search' && document.activeElement.offsetParent", "it is here"
        )
        await browser.press("s", "2")
        await browser.until("document.querySelector('#grid').getAttribute('aria-rowcount') === '1'", "it is searched")


async def test_an_empty_plan_does_not_say_that_all_is_well_where_something_is_not(browser):
    fleet = Fleet()
    fleet.put("s0", condition("Accepted", "False", "Invalid", "port 0 is none"))
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/plan")
        await browser.until("document.querySelector('#view-plan .empty')", "nothing waits")
        assert "1 load balancer has a problem" in await browser.text("#view-plan .empty")
        fleet.put("s0", *GOOD)
        await browser.until(
            "!document.querySelector('#view-plan .empty').innerText.includes('a problem')", "it is well"
        )


async def test_the_plan_counts_what_it_does_not_list(browser):
    fleet = Fleet()
    rows = (PlanRow("Drain", "a", "Absent", "Paused", "it is paused"), PlanRow("Register", "b", "New"))
    fleet.plans["p"] = PlanItem(
        id="TCPLoadBalancer/t/p", title="p", provider="haproxy", rows=rows, held=4, more=8, command="fairlead plan p"
    )
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/plan")
        await browser.until("document.querySelector('#view-plan .bar p')", "the plan is shown")
        assert await browser.text("#view-plan .bar p") == "4 held, 6 pending"
