"""The page over HTTP: who is answered, what goes with an answer, and the stream."""

from __future__ import annotations

import asyncio
import contextlib
import json

import aiohttp
import pytest
from prometheus_client import CollectorRegistry

from fairlead.cli.top import ask_hub
from fairlead.errors import Unauthorized, Unreachable
from fairlead.hub.inspect.preview import KeyState
from fairlead.model.change import HistoryKind, Revision
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import Counted, Totals
from fairlead.page import web
from fairlead.page import web as seats
from fairlead.page.board import Board, Change, TableSource, VisibleItem
from fairlead.page.tables import Detail, MemberItem, RouteItem
from fairlead.page.traffic import Traffic
from fairlead.page.web import AllRights, AuditedLoadBalancer, WebPage, event, refused
from fairlead.runtime.clock import SystemClock
from fairlead.runtime.telemetry import StatusServer
from fairlead.runtime.tls import is_this_machine
from fairlead.sync.history import History


@pytest.mark.parametrize("host", ["127.0.0.1:9090", "localhost", "LOCALHOST:1", "[::1]:9090", "192.0.2.7:80", "[::1]"])
def test_addresses_are_this_machine(host: str) -> None:
    assert is_this_machine(host)


@pytest.mark.parametrize("host", ["", "evil.example:9090", "127.0.0.1.evil.example", "localhost.evil", "[evil]:1"])
def test_names_may_be_another_sites(host: str) -> None:
    assert not is_this_machine(host)
    assert "not a name of this machine" in refused({"Host": host}, any_host=False)
    assert not refused({"Host": host}, any_host=True)


def test_other_sites_get_no_answer_but_a_link_to_the_page_works() -> None:
    here = {"Host": "127.0.0.1:1"}
    assert refused({**here, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "cors"}, any_host=True)
    assert refused({**here, "Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "no-cors"}, any_host=False)
    assert not refused({**here, "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, any_host=False)
    assert not refused({**here, "Sec-Fetch-Site": "same-origin"}, any_host=False)


def test_an_event_is_one_line_of_json() -> None:
    shown = VisibleItem(MemberItem(id="east", namespace="tenant-east", problems=("one\n\nline",)), "tenants")
    text = event("change", [Change("member", "east", shown), Change("lb", "a", shown, gone=True)]).decode()
    head, data, end, _ = text.split("\n")
    assert (head, end) == ("event: change", "")
    body = json.loads(data.removeprefix("data: "))
    assert body["set"]["member"][0] == {"id": "east", "namespace": "tenant-east", "problems": ["one\n\nline"]}
    assert body["gone"] == {"lb": ["a"]}


class Members(TableSource):
    table = "member"

    def watch(self, changed):
        self.changed = changed

    def all_keys(self):
        return ["east"]

    def visible_item(self, key):
        return VisibleItem(MemberItem(id=str(key), namespace="tenant-east"), "tenants")


class Closed(AllRights):
    async def rights(self, headers):
        raise Unauthorized("sign in")


async def none(_key, _only):
    return None


@contextlib.asynccontextmanager
async def served(page):
    async with StatusServer("127.0.0.1", 0, CollectorRegistry(), list, extend=page.add_to) as server:
        yield server


async def test_files_headers_and_the_stream():
    page = WebPage(Board([Members()], clock=SystemClock()), gate=AllRights(), explain=none)
    async with (
        StatusServer("127.0.0.1", 0, CollectorRegistry(), list, extend=page.add_to) as server,
        aiohttp.ClientSession(server.url) as session,
    ):
        async with session.get("/") as answer:
            assert answer.headers["Content-Security-Policy"].startswith("default-src 'none'; script-src 'self'")
            text = await answer.text()
            assert '<script type="module" src="/page/main.js"></script>' in text
        for name, kind in (("main.js", "text/javascript"), ("page.css", "text/css"), ("icon.svg", "image/svg+xml")):
            async with session.get(f"/page/{name}") as answer:
                assert (answer.status, answer.content_type) == (200, kind)
        async with session.get("/page/..%2fweb.py") as answer:
            assert answer.status == 404
        async with session.get("/", headers={"Host": "evil.example"}) as answer:
            assert answer.status == 403
        async with session.get("/page/load-balancers/TCPLoadBalancer/a/b") as answer:
            assert answer.status == 404
        async with session.post("/page/events") as answer:
            assert answer.status == 405
        async with session.get("/page/events") as answer:
            assert answer.content_type == "text/event-stream"
            assert await answer.content.readline() == b"event: all\n"
            assert b'"id":"east"' in await answer.content.readline()


async def test_without_rights_the_page_comes_and_its_data_does_not():
    page = WebPage(Board([Members()], clock=SystemClock()), gate=Closed(), explain=none, any_host=True)
    async with (
        StatusServer("127.0.0.1", 0, CollectorRegistry(), list, extend=page.add_to) as server,
        aiohttp.ClientSession(server.url) as session,
    ):
        async with session.get("/", headers={"Host": "fairlead.example"}) as answer:
            assert answer.status == 200
        for path in ("/page/events", "/page/load-balancers/TCPLoadBalancer/a/b", "/debug/keys/TCPLoadBalancer/a/b"):
            async with session.get(path) as answer:
                assert (answer.status, await answer.text()) == (401, "sign in\n")


class NoApi(AllRights):
    async def rights(self, headers):
        raise Unreachable("Cannot reach https://10.1.2.3:6443 (hub of /etc/fairlead/kubeconfig)")


@pytest.mark.parametrize(("any_host", "shown"), [(True, False), (False, True)])
async def test_who_has_not_signed_in_does_not_read_where_the_api_is(any_host, shown):
    page = WebPage(Board([Members()], clock=SystemClock()), gate=NoApi(), explain=none, any_host=any_host)
    async with (
        served(page) as server,
        aiohttp.ClientSession(server.url) as session,
        session.get("/page/events") as answer,
    ):
        text = await answer.text()
        assert answer.status == 503
        assert ("10.1.2.3" in text) == shown
        assert "try again" in text or shown


def known(key):
    return KeyState(*key, exists=True, providers=[], history=[])


@pytest.mark.req("S-6", "OP-10")
async def test_history_in_memory_needs_the_right_to_list_the_kind():
    path = "/debug/keys/HTTPLoadBalancer/tenant-east/edge"
    for gate, closed, host, status in (
        (Only("httploadbalancers"), True, "fairlead.example", 200),
        (Only("tcploadbalancers"), True, "fairlead.example", 404),
        (AllRights(), False, "127.0.0.1", 200),
    ):
        page = WebPage(Board([Members()], clock=SystemClock()), gate=gate, explain=none, known=known, any_host=closed)
        async with served(page) as server, aiohttp.ClientSession(server.url) as session:
            async with session.get(path, headers={"Host": host}) as answer:
                assert answer.status == status
                assert status != 200 or (await answer.json())["name"] == "edge"
            async with session.get(path, headers={"Host": "evil.example"}) as answer:
                assert answer.status == (status if closed else 403)


async def test_streams_are_bounded_in_all_and_of_one_viewer_and_a_seat_is_free_again(monkeypatch):
    monkeypatch.setattr(seats, "MAX_STREAMS", 3)
    monkeypatch.setattr(seats, "MAX_OF_ONE", 2)
    board = Board([Members()], clock=SystemClock())
    page = WebPage(board, gate=ByHeader(), explain=none)
    async with served(page) as server, aiohttp.ClientSession(server.url) as session:

        async def opened(viewer):
            answer = await session.get("/page/events", headers={"Viewer": viewer})
            if answer.status == 200:
                assert await answer.content.readline() == b"event: all\n"
            return answer

        first, second = await opened("alice"), await opened("alice")
        refused_one = await opened("alice")
        assert (refused_one.status, refused_one.headers["Retry-After"]) == (429, "10")
        assert "close some" in await refused_one.text()
        third = await opened("bob")
        assert (first.status, second.status, third.status) == (200, 200, 200)
        refused_all = await opened("carol")
        assert (refused_all.status, refused_all.content_type) == (503, "text/plain")
        assert "close some, or try later" in await refused_all.text()
        first.close()
        async with asyncio.timeout(180):
            while (again := await opened("carol")).status != 200:  # noqa: ASYNC110 - the server sees it leave
                await asyncio.sleep(0.05)
        assert len(board._viewers) == 3
        for each in (second, third, again):
            each.close()


class Large(Members):
    def visible_item(self, key):
        return VisibleItem(MemberItem(id=str(key), namespace="tenant-east", problems=("x" * 30_000_000,)), "tenants")


async def test_a_viewer_that_reads_nothing_gives_its_seat_back(monkeypatch):
    monkeypatch.setattr(web, "_STALLED_S", 0.2)
    board = Board([Large()], clock=SystemClock())
    page = WebPage(board, gate=AllRights(), explain=none)
    async with served(page) as server:
        _, writer = await asyncio.open_connection("127.0.0.1", server.port, limit=1024)
        writer.write(b"GET /page/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        async with asyncio.timeout(180):
            while not board._viewers:  # noqa: ASYNC110 - another task's
                await asyncio.sleep(0.01)
            while board._viewers:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class ByHeader(AllRights):
    """A gate that takes the name of the viewer from a header."""

    async def rights(self, headers):
        rights = AllRights()
        rights.viewer = headers["Viewer"]
        return rights


class Only(AllRights):
    """The rights of who may list some kinds."""

    def __init__(self, *resources: str) -> None:
        self._resources = resources

    async def of(self, wanted):
        return {right: right[0] in self._resources for right in wanted}


async def edge(key, _only):
    return Detail(id=str(key), conditions=[], providers=[], history=[], routes=[RouteItem("Ingress", "shop/web")],
                  more_routes=3)  # fmt: skip


@pytest.mark.req("OP-10")
@pytest.mark.parametrize(
    ("resources", "status", "routes"),
    [(("httploadbalancers", "loadbalancerroutes"), 200, 1), (("httploadbalancers",), 200, 0),
     (("loadbalancerroutes",), 404, 0)],
)  # fmt: skip
async def test_routes_are_for_those_who_may_list_routes(resources, status, routes):
    page = WebPage(Board([Members()], clock=SystemClock()), gate=Only(*resources), explain=edge, any_host=True)
    async with (
        StatusServer("127.0.0.1", 0, CollectorRegistry(), list, extend=page.add_to) as server,
        aiohttp.ClientSession() as session,
        session.get(f"{server.url}/page/load-balancers/HTTPLoadBalancer/tenant-east/edge") as answer,
    ):
        assert answer.status == status
        if status == 200:
            body = await answer.json()
            assert (len(body["routes"]), body["moreRoutes"]) == (routes, 3 * routes)


class Trends(Traffic):
    """Traffic with a last hour, and without readers."""

    def __init__(self) -> None:
        super().__init__(list, clock=SystemClock(), now=SystemClock().now)
        for minute in range(3):
            added = {WEB: Totals(60), EDGE: Totals(1, requests=(0, 60, 0, 0, 6))}
            self.last_hour.add(added, 60.0 * minute + 30, 30.0)
        self.last_hour.add({}, 200.0, 20.0)


WEB = Counted(LoadBalancerKey("TCPLoadBalancer", "tenant-east", "web"))
EDGE = Counted(LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "edge"))


@pytest.mark.req("OP-11", "S-6")
async def test_the_last_hour_is_shown_and_summed_for_those_who_may_list_it():
    for gate, seen, last in (
        (AllRights(), {str(WEB), str(EDGE)}, 1.1),
        (Only("tcploadbalancers"), {str(WEB)}, 1.0),
        (Only("hostnames"), set(), None),
    ):
        page = WebPage(Board([], clock=SystemClock()), gate=gate, explain=none, traffic=Trends())
        asked = [("id", str(WEB)), ("id", str(EDGE)), ("id", "x/y/z"), ("whole", "")]
        async with (
            served(page) as server,
            aiohttp.ClientSession(server.url) as session,
            session.get("/page/trends", params=asked) as answer,
        ):
            body = await answer.json()
        assert set(body["trends"]) == seen
        assert (body["whole"]["load"][-1] if body["whole"] else None) == last


@pytest.mark.req("S-6")
@pytest.mark.parametrize(
    ("headers", "changes", "allowed"),
    [
        ({"Host": "127.0.0.1:1"}, True, True),
        ({"Host": "127.0.0.1:1", "Sec-Fetch-Site": "same-origin", "Origin": "http://127.0.0.1:1"}, True, True),
        ({"Host": "127.0.0.1:1", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, False, True),
        ({"Host": "127.0.0.1:1", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"}, True, False),
        ({"Host": "127.0.0.1:1", "Sec-Fetch-Site": "none"}, True, False),
        ({"Host": "127.0.0.1:1", "Origin": "http://127.0.0.1:2"}, True, False),
        ({"Host": "127.0.0.1:1", "Origin": "null"}, True, False),
        ({"Host": "evil.example"}, True, False),
    ],
)
def test_changes_are_taken_from_the_page_itself_only(headers, changes, allowed):
    assert (refused(headers, any_host=False, changes=changes) == "") == allowed


@pytest.mark.req("F-30")
async def test_changes_are_shown_to_viewers_who_may_list_the_load_balancers():
    class OfEast(AllRights):
        async def of(self, wanted):
            return {right: right == ("tcploadbalancers", "tenant-east") for right in wanted}

        async def rights(self, headers):
            return self

    history = History(now=SystemClock().now)
    for namespace in ("tenant-east", "tenant-west"):
        revision = Revision("Changed", "alice", fields=(("drain", "", "5s"),))
        key = LoadBalancerKey("TCPLoadBalancer", namespace, "web")
        history.note(key, HistoryKind.CHANGED, revision.sentence, revision=revision)
        history.note(key, HistoryKind.FAILED, "the provider refuses port 80")
    page = WebPage(Board([], clock=SystemClock()), gate=OfEast(), explain=none, revisions=history.revisions)
    async with served(page) as server:
        answer = await ask_hub(server.url, "/page/audit", None, list[AuditedLoadBalancer], what="the changes")
    assert answer is not None
    (audited,) = answer
    assert audited.load_balancer == "TCPLoadBalancer/tenant-east/web"
    assert [entry.text for entry in audited.changes] == ["alice changed drain: - -> 5s"]
