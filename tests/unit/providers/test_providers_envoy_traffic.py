"""The counts of an Envoy: lines of ``/stats`` become counts by load balancer, and only what has changed is read."""

from __future__ import annotations

import pytest

from fairlead.model.keys import LoadBalancerKey, TargetKey
from fairlead.model.observed import Counted, Totals
from fairlead.providers.envoy.traffic import EnvoyTraffic, TrafficCounts

#: As Envoy 1.38 prints it.
TCP = """\
cluster.TCPLoadBalancer/tenant-east/shop.web/TCP/80.upstream_cx_active: 2
tcp.TCPLoadBalancer/tenant-east/shop.web/TCP/80.downstream_cx_rx_bytes_total: 954
tcp.TCPLoadBalancer/tenant-east/shop.web/TCP/80.downstream_cx_total: 453
tcp.TCPLoadBalancer/tenant-east/shop.web/TCP/80.downstream_cx_tx_bytes_total: 266007
cluster.TCPLoadBalancer/tenant-east/shop.web/TCP/80.upstream_cx_connect_ms: P0(0,0) P50(1.5,0) P99(2.5,0)
"""
HTTP = """\
http.HTTPLoadBalancer/tenant-east/edge/routes/80.downstream_cx_active: 1
http.HTTPLoadBalancer/tenant-east/edge/routes/80.downstream_rq_2xx: 7
http.HTTPLoadBalancer/tenant-east/edge/routes/80.downstream_rq_5xx: 1
http.HTTPLoadBalancer/tenant-east/edge/routes/443.downstream_rq_2xx: 3
http.HTTPLoadBalancer/tenant-east/edge/routes/80.downstream_rq_time: P50(nan,1.05) P99(nan,4.0)
http.HTTPLoadBalancer/tenant-east/edge/routes/443.downstream_rq_time: P50(2,1.05) P99(9.5,4.0)
"""
BACKEND = """\
cluster.HTTPLoadBalancer/tenant-east/edge/backend/shop.web.80.upstream_rq_2xx: 9
cluster.HTTPLoadBalancer/tenant-east/edge/backend/shop.web.80.external.upstream_rq_2xx: 9
cluster.HTTPLoadBalancer/tenant-east/edge/backend/shop.web.80.upstream_cx_tx_bytes_total: 100
cluster.HTTPLoadBalancer/tenant-east/edge/backend/shop.web.80.upstream_cx_rx_bytes_total: 900
cluster.HTTPLoadBalancer/tenant-east/edge/backend/shop.web.80.upstream_rq_time: P50(3,1) P99(8,4)
"""
WEB = Counted(LoadBalancerKey("TCPLoadBalancer", "tenant-east", "shop.web"))
EDGE = Counted(LoadBalancerKey("HTTPLoadBalancer", "tenant-east", "edge"))


@pytest.mark.req("OP-11")
def test_ports_of_a_load_balancer_are_summed_and_the_slowest_counts() -> None:
    taken = TrafficCounts().take(TCP + HTTP)
    assert taken[WEB] == Totals(453, 2, 954, 266007, p50_ms=1.5, p99_ms=2.5)
    assert taken[EDGE] == Totals(active=1, requests=(0, 10, 0, 0, 1), p50_ms=2.0, p99_ms=9.5)


@pytest.mark.req("OP-11")
def test_a_backend_and_its_load_balancer_are_both_counted() -> None:
    taken = TrafficCounts().take(HTTP + BACKEND)
    of_backend = Totals(bytes_in=100, bytes_out=900, requests=(0, 9, 0, 0, 0), p50_ms=3.0, p99_ms=8.0)
    assert taken[Counted(EDGE.load_balancer, "shop.web.80")] == of_backend
    assert sum(taken[EDGE].requests) == 11


@pytest.mark.req("OP-11", "MC-14")
def test_a_backend_is_counted_under_the_name_that_agents_publish() -> None:
    """Envoy writes colons as underscores; shifts look for the backends of routes by name."""
    text = "cluster.HTTPLoadBalancer/tenant-east/edge/backend/shop/web_80.upstream_rq_5xx: 3\n"
    taken = TrafficCounts().take(text)
    assert taken == {Counted(EDGE.load_balancer, "shop/web:80"): Totals(requests=(0, 0, 0, 0, 3))}


@pytest.mark.req("OP-11")
def test_a_route_is_counted_over_all_of_its_hosts() -> None:
    route = "route.HTTPLoadBalancer/a/edge/route/ingress/shop/web.v2"
    text = "".join(
        f"vhost.{host}.{route}.upstream_rq_{name}\n"
        for host in ("shop.example.com", "a.route.example.com", "*")
        for name in ("2xx: 3", "5xx: 1", "200: 3", "time: P50(2.0,2.5) P99(9.0,9.5)")
    )
    edge = LoadBalancerKey("HTTPLoadBalancer", "a", "edge")
    taken = TrafficCounts().take(text)
    assert taken == {
        Counted(edge, route="ingress/shop/web.v2"): Totals(requests=(0, 9, 0, 0, 3), p50_ms=2.0, p99_ms=9.0)
    }
    assert [str(each) for each in taken] == ["HTTPLoadBalancer/a/edge@ingress/shop/web.v2"]


@pytest.mark.req("MC-25")
def test_answers_and_refusals_of_a_target_are_counted() -> None:
    name = "cluster.GlobalService/tenant-east/web/TCP/80.endpoint.10.1.0.1_8080"
    counts = {"cx_total": 9, "cx_active": 2, "cx_connect_fail": 3, "rq_success": 5, "rq_error": 4}
    text = "".join(f"{name}.{statistic}: {value}\n" for statistic, value in counts.items())
    key = LoadBalancerKey("GlobalService", "tenant-east", "web")
    assert TrafficCounts().take(text) == {
        Counted(key, target=TargetKey("10.1.0.1", 8080)): Totals(
            connections=9, active=2, failed=3, requests=(0, 5, 0, 0, 4)
        )
    }


@pytest.mark.req("MC-14")
def test_failed_connections_of_routes_without_http_are_counted() -> None:
    name = "cluster.HTTPLoadBalancer/tenant-east/edge/backend/shop/db_5432"
    text = f"{name}.upstream_cx_total: 9\n{name}.upstream_cx_none_healthy: 2\n"
    counted = Counted(EDGE.load_balancer, "shop/db:5432")
    assert TrafficCounts().take(text) == {counted: Totals(connections=9, failed=2)}
    # Over HTTP, they are requests that are answered 503.
    text += f"{name}.upstream_rq_5xx: 2\n"
    assert TrafficCounts().take(text) == {counted: Totals(connections=9, requests=(0, 0, 0, 0, 2))}


@pytest.mark.req("OP-11")
def test_only_what_has_changed_is_returned() -> None:
    counts = TrafficCounts()
    counts.take(TCP + HTTP)
    assert counts.take(TCP + HTTP) == {}
    changed = counts.take(TCP.replace("total: 453", "total: 460") + HTTP)
    assert set(changed) == {WEB}
    assert changed[WEB].connections == 460


@pytest.mark.parametrize(
    "text", ["", "no statistic\n", "tcp.x.downstream_cx_total: 1\n", "tcp.a/b/c/d.downstream_cx_total: x"]
)
def test_foreign_entries_are_not_counted(text: str) -> None:
    assert all(totals == Totals() for totals in TrafficCounts().take(text).values())


async def test_a_proxy_that_does_not_answer_is_reported():
    answers = [(200, TCP), (0, "no such file"), (200, TCP)]

    async def get(_path: str) -> tuple[int, str]:
        return answers.pop(0)

    envoy = EnvoyTraffic(get, name="the Envoy of this machine")
    (first,), (reading,), (again,) = await envoy.read(), await envoy.read(), await envoy.read()
    assert "the Envoy of this machine does not answer" in reading.problem
    # After a gap everything is read again.
    assert again == first


def test_a_statistic_that_is_gone_counts_no_more() -> None:
    counts = TrafficCounts()
    counts.take(TCP + HTTP)
    assert (counts.take(HTTP), counts.gone) == ({}, {WEB})
    assert (counts.take(HTTP), counts.gone) == ({}, frozenset())
    assert counts.take(TCP.partition("\n")[0] + "\n" + HTTP)[WEB] == Totals(active=2)
    counts.take(TCP)
    # A port is gone, and another is still there: what is left is what counts.
    assert counts.take(TCP + HTTP)[EDGE].active == 1
    left = "".join(line for line in HTTP.splitlines(keepends=True) if "/80." not in line)
    assert counts.take(TCP + left)[EDGE] == Totals(requests=(0, 3, 0, 0, 0), p50_ms=2.0, p99_ms=9.5)
    assert counts.gone == frozenset()


@pytest.mark.req("F-32")
def test_growth_is_counted_listener_by_listener() -> None:
    def text(*ports: tuple[int, int], uptime_s: int = 100) -> str:
        name = "tcp.TCPLoadBalancer/tenant-east/shop.web/TCP"
        lines = [f"{name}/{port}.downstream_cx_tx_bytes_total: {sent}\n" for port, sent in ports]
        return "".join([*lines, f"server.uptime: {uptime_s}\n"])

    counts = TrafficCounts()
    counts.take(text((80, 1000), (81, 5000)))
    assert counts.grown is None
    assert counts.take(text((80, 1300), (81, 5001)))[WEB].bytes_out == 6301
    assert counts.grown == {WEB: Totals(bytes_out=301)}
    # One listener goes: what the other had counted before is not new.
    assert counts.take(text((80, 1310)))[WEB].bytes_out == 1310
    assert counts.grown == {WEB: Totals(bytes_out=10)}
    assert counts.take(text((80, 4000), uptime_s=5))[WEB].bytes_out == 4000
    assert counts.grown == {WEB: Totals(bytes_out=4000)}, "another process counts from zero, however much it has"
    assert counts.take("server.uptime: 2\n") == {}
    assert (counts.gone, counts.grown) == ({WEB}, {})
