"""A real Chromium: rows of routes, the last hour, the chain, the timeline, and changes with the viewer's own token."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from page_world import Fleet, served

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import KubeObject, Resource
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import ClusterConfig, bearer, request_token
from fairlead.kube.discovery import install_crds
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Totals
from fairlead.page.routes import Chain, ChainColumn, ChainNode, RouteRow
from fairlead.page.tables import Detail, MemberShareItem, SharedItem
from fairlead.page.timeline import EventItem, EventKind
from fairlead.page.traffic import Traffic
from fairlead.page.web import TokenGate
from fairlead.runtime.clock import SystemClock
from fairlead.status.fleet import Trouble
from fairlead_demo.worlds.processes import wait_until
from podless import ApiServer
from tests.fleet_objects import GOOD

pytestmark = [pytest.mark.slow, pytest.mark.req("OP-10")]

ADMIN = "for-these-tests-only"
EDGE = "HTTPLoadBalancer/tenant-east/ingressclass.edge"
S1 = "TCPLoadBalancer/tenant-east/shop.s1"
AT = "2029-12-31T00:00:00Z"
WHY = "requests for shop.example.com fail: no healthy target behind backend shop/cart:80"
ROUTE = RouteRow(
    id="Ingress/tenant-east/shop/cart", state="NotServing", problems=(WHY,), kind="Ingress", namespace="tenant-east",
    title="ingress/east/shop/cart", member="east", reason="NoHealthyTargets", targets="cart", hosts="shop.example.com",
    load_balancers=(EDGE,), command="fairlead explain ingress/east/shop/cart",
)  # fmt: skip
CHAIN = Chain(
    (
        ChainColumn("Route", (ChainNode("r", "Ingress shop/<b>cart</b>", "NotServing", WHY),)),
        ChainColumn("Service", (ChainNode("s", "shop/cart", "NotServing"), ChainNode("t", "shop/web"))),
    ),
    (("r", "s"), ("r", "t")),
)


def last_hour() -> Traffic:
    """Return traffic with two minutes of a route and of a load balancer."""
    traffic = Traffic(list, clock=SystemClock(), now=SystemClock().now)
    edge = LoadBalancerKey(*EDGE.split("/"))
    for minute in range(3):
        added = {
            Counted(edge, route="ingress/shop/cart"): Totals(1, requests=(0, 60, 0, 0, 60)),
            Counted(LoadBalancerKey(*S1.split("/"))): Totals(120),
        }
        traffic.last_hour.add(added, 60.0 * minute + 40, 30.0)
    traffic.last_hour.add({}, 190.0, 10.0)
    return traffic


@pytest.mark.parametrize(("width", "dark"), [(1280, True), (420, False)])
async def test_a_route_has_a_row_with_its_sentence_its_hour_and_its_chain(browser, width, dark):
    fleet = Fleet()
    fleet.add(3)
    fleet.routes["cart"] = ROUTE
    fleet.details[EDGE] = Detail(id=EDGE, conditions=[], providers=[], history=[], chain=CHAIN)
    await browser.dark(on=dark)
    await browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    async with served(fleet, traffic=last_hour()) as server:
        await browser.open(server.url)
        row = "document.getElementById('row-Ingress/tenant-east/shop/cart')"
        await browser.until(f"{row}?.querySelector('svg.spark path.errors')", "the row has the last hour with errors")
        assert await browser.js(f"{row}.getAttribute('aria-rowindex')") == "1"
        assert await browser.js(f"{row}.querySelector('.why-line').textContent") == WHY
        traffic = await browser.js(f"{row}.querySelector('.traffic').getAttribute('aria-label')")
        assert traffic.startswith("Last hour: idle now; up to 2 requests/s, 180 errors")
        assert (await browser.js(f"{row}.querySelector('.traffic').checkVisibility()")) == (width > 1000)
        await browser.js(f"{row}.click()")
        await browser.until("document.querySelectorAll('#detail .diagram svg path').length === 2", "the chain is drawn")
        nodes = "[...document.querySelectorAll('#detail .node')].map((node) => node.textContent)"
        assert await browser.js(nodes) == [
            f"Ingress shop/<b>cart</b>: does not serve{WHY}. Leads to shop/cart, shop/web",
            "shop/cart: does not serve",
            "shop/web: serves",
        ]
        kinds = "[...document.querySelectorAll('#detail .diagram path')].map((path) => path.getAttribute('class'))"
        assert await browser.js(kinds) == ["NotServing", "Serving"]
        assert await browser.js("document.documentElement.scrollWidth <= innerWidth") is True
    assert all("ERR_" in error for error in browser.errors), browser.errors


@pytest.mark.req("MC-1", "MC-9")
@pytest.mark.parametrize("width", [1280, 420])
async def test_members_of_a_global_service_and_what_a_set_shares_are_in_tables(browser, width):
    fleet = Fleet()
    fleet.put("s1", *GOOD)
    fleet.shared["web"] = SharedItem(
        id="shop/web/prod/", state="NeedsAttention", service="shop/web", cluster_set="prod",
        exported_by=("east", "west"), imported_by=("north",), reason="PortConflict",
        problems=("the exports have different ports",),
    )  # fmt: skip
    members = [
        MemberShareItem("west", "shop/web", "100%", 0, "2/2 healthy", "Serving", Trouble.NONE, "", ""),
        MemberShareItem("east", "shop/web", "down", 0, "0/2 healthy", "Down", Trouble.NOT_SERVING, WHY, AT),
    ]
    fleet.details[S1] = Detail(id=S1, conditions=[], providers=[], history=[], members=members)
    await browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
    async with served(fleet) as server:
        await browser.open(f"{server.url}/#/members")
        await browser.until("document.querySelector('#title-shared + .card tbody tr')", "the shared Service is shown")
        row = await browser.text("#title-shared + .card tbody tr")
        assert all(
            part in row for part in ("shop/web", "prod", "east, west", "north", "PortConflict", "different ports")
        )
        assert await browser.text("nav a[href$=members] .badge") == "1"
        await browser.open(f"{server.url}/#/load-balancers/{S1}")
        table = "[...document.querySelectorAll('#detail table')].find((each) => each.caption.textContent === 'Members')"
        await browser.until(table, "the members are shown")
        text = await browser.js(f"[...{table}.querySelectorAll('tbody tr')].map((each) => each.innerText)")
        assert "100%, tier 0" in text[0]
        assert all(part in text[1] for part in ("down, tier 0", "0/2 healthy", "Down", WHY, "agent silent for"))
        labels = await browser.js(f"[...{table}.querySelector('tbody tr').cells].map((each) => each.dataset.label)")
        assert labels == ["Member", "Share", "Endpoints", "State"], "a narrow screen has the heads in the cells"
        assert await browser.js("document.documentElement.scrollWidth <= innerWidth") is True
    assert all("ERR_" in error for error in browser.errors), browser.errors


async def test_what_an_agent_rejects_of_a_listed_load_balancer_is_in_its_row(browser):
    fleet = Fleet()
    fleet.add(2)
    fleet.routes["s1"] = msgspec.structs.replace(
        ROUTE, id="Service/tenant-east/shop/s1", kind="Service", title="svc/east/shop/s1", load_balancers=(),
        problems=("annotation drain: 2h is too long",),
    )  # fmt: skip
    async with served(fleet) as server:
        await browser.open(server.url)
        await browser.until("document.querySelectorAll('#grid .row').length === 2", "there is no second row for it")
        first = "document.querySelector('#grid .row[aria-rowindex=\"1\"]').textContent"
        assert "annotation drain: 2h is too long" in await browser.js(first)
        assert await browser.text("nav a[href$=load-balancers] .badge") == "1"


async def test_the_fleet_has_its_parts_and_what_happened_newest_first(browser):
    fleet = Fleet()
    fleet.add(2)
    for number, (kind, text) in enumerate(((EventKind.CHANGE, "created"), (EventKind.HEALTH, "<i>does not serve</i>"))):
        at = f"2029-12-31T0{number}:00:00Z"
        fleet.events[str(number)] = EventItem(str(number), at, kind, "Serving", "east/shop/s1", text, S1)
    async with served(fleet, traffic=last_hour()) as server:
        await browser.open(f"{server.url}/#/fleet")
        await browser.until("document.querySelector('#view-fleet .hour')", "the traffic of all is shown")
        rows = "[...document.querySelectorAll('#view-fleet .events li')].map((row) => row.dataset.id)"
        assert await browser.js(rows) == ["1", "0"]
        assert "<i>does not serve</i>" in await browser.text("#view-fleet .events li")
        names = "[...document.querySelectorAll('#view-fleet .node .text')].map((node) => node.textContent)"
        assert await browser.js(names) == ["east", "hub-1"]
        await browser.click("#view-fleet button[aria-label^='Changes']")
        await browser.until(f"String({rows}) === '0'", "only changes are shown")
        await browser.until("document.activeElement.getAttribute('aria-label') === 'Changes: 1'", "the focus stays")
        fleet.events["2"] = EventItem(
            "2", "2029-12-31T03:00:00Z", EventKind.CHANGE, "Serving", "east/shop/s2", "deleted"
        )
        fleet.mark("event", "2")
        await browser.until(f"String({rows}) === '2,0'", "what happens while it is looked at comes first")

        # What happens between press and release draws nothing: the click of a replaced link would be lost.
        async def another() -> None:
            fleet.events["3"] = EventItem(
                "3", "2029-12-31T04:00:00Z", EventKind.CHANGE, "Serving", "east/shop/s2", "made"
            )
            fleet.mark("event", "3")
            await asyncio.sleep(0.5)

        await browser.click("#view-fleet .events li[data-id='0'] a", held=another)
        await browser.until(
            "document.querySelector('#detail-title')?.innerText === 'east/shop/s1'", "a link leads there"
        )
        foreign = [url for url in browser.requests if not url.startswith((server.url, "about:", "data:"))]
        assert foreign == []


async def test_a_token_that_may_pauses_and_resumes_by_keyboard(browser):
    fleet, api = Fleet(), ApiServer(admin_token=ADMIN)
    fleet.put("s1", *GOOD)
    fleet.details[S1] = Detail(id=S1, conditions=[], providers=[], history=[])
    await api.start()
    config = ClusterConfig(server=api.url, sign_in=bearer(ADMIN))
    async with Cluster(config, name="hub") as admin:
        await install_crds(admin, all_crds(), "tests")
        body = {"metadata": {"namespace": "tenant-east", "name": "shop.s1"}, "spec": {"ports": [{"port": 80}]}}
        await admin.create(NAMESPACES, {"metadata": {"name": "tenant-east"}})
        await admin.create(TCP_LOAD_BALANCERS, body)
        accounts = Resource("", "v1", "ServiceAccount", "serviceaccounts", True, KubeObject)
        for name in ("viewer", "operator"):
            await admin.create(accounts, {"metadata": {"name": name, "namespace": "tenant-east"}})
        meta = {"metadata": {"name": "operator", "namespace": "tenant-east"}}
        rules = [{"apiGroups": ["fairlead.dev"], "resources": ["tcploadbalancers"], "verbs": ["patch"]}]
        group = "rbac.authorization.k8s.io"
        subject = {"kind": "ServiceAccount", "name": "operator", "namespace": "tenant-east"}
        await admin.create(Resource(group, "v1", "Role", "roles", True, KubeObject), {**meta, "rules": rules})
        bound = {**meta, "roleRef": {"apiGroup": group, "kind": "Role", "name": "operator"}, "subjects": [subject]}
        await admin.create(Resource(group, "v1", "RoleBinding", "rolebindings", True, KubeObject), bound)

        async def sign_in(account: str) -> None:
            await browser.until("document.activeElement?.id === 'token'", "a token is asked for")
            token = (await request_token(admin, "tenant-east", account, valid_s=3600)).token
            await browser.js(f"document.querySelector('#token').value = {token!r}")
            await browser.press("Enter")

        async def paused(value: str | None) -> None:
            async def is_so() -> bool:
                lb = await admin.get(TCP_LOAD_BALANCERS, "tenant-east", "shop.s1")
                return (lb.metadata.annotations or {}).get("fairlead.dev/paused") == value

            await wait_until(is_so, f"paused is {value}")

        async with served(fleet, actors=TokenGate(config, clock=SystemClock())) as server:
            await browser.open(f"{server.url}/#/load-balancers/{S1}")
            await browser.until("document.querySelector('#detail .actions button')", "a change needs a token")
            assert await browser.js("document.querySelectorAll('#detail [data-action]').length") == 0
            await browser.js("document.querySelector('#detail .actions button').focus()")
            await browser.press("Enter")
            await sign_in("viewer")
            refusal = "system:serviceaccount:tenant-east:viewer may not change this load balancer."
            await browser.until(f"document.querySelector('#detail .actions p')?.innerText === {refusal!r}", "not it")
            await browser.js("document.querySelector('#detail .actions button').focus()")
            await browser.press("Enter")
            await sign_in("operator")
            for action, value in (("pause", "true"), ("resume", None)):
                await browser.until(f"document.querySelector('#detail [data-action={action}]')", f"{action} is offered")
                await browser.js(f"document.querySelector('#detail [data-action={action}]').focus()")
                await browser.press("Enter")
                await browser.until("document.activeElement?.matches('#detail .actions .main')", "it is asked")
                await browser.press("Enter")
                await paused(value)
                detail = msgspec.structs.replace(fleet.details[S1], paused=value == "true")
                fleet.details[S1] = detail
    await api.stop()
