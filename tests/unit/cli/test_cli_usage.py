"""``fairlead usage``: sums by tenant, namespace and load balancer, of what hubs have stored, each hour once."""

from __future__ import annotations

import csv
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from fairlead.api.kubernetes import ConfigMap
from fairlead.api.usage import HeldPeriod, OpenHours, UsageRow, packed
from fairlead.cli.selection import selection_of
from fairlead.cli.usage import (
    Prices,
    StoredUsage,
    UsageSpan,
    csv_lines,
    lines_of,
    read_prices,
    span_of,
    stored_usage,
    used,
)
from fairlead.cli.verbs import UsageBy, UsagePer
from fairlead.errors import BadConfiguration

EAST = "TCPLoadBalancer/tenant-east/shop.web"
WEST = "HTTPLoadBalancer/tenant-west/public"
HERE = "LoadBalancer/edge/db"
TENANTS = {"tenant-east": "east", "tenant-west": "west"}
SPAN = UsageSpan(datetime(2030, 1, 1, tzinfo=UTC), datetime(2030, 1, 2, tzinfo=UTC))


def row(hour: int, name: str, size: int, origin: str = "") -> UsageRow:
    return UsageRow(f"2030-01-01T{hour:02d}", name, origin, 1, 0, 0, size)


def config_map(name: str, content: str, data: dict[str, str]) -> ConfigMap:
    meta = {"namespace": "any", "name": f"fairlead-usage-{name}", "labels": {"fairlead.dev/usage": content}}
    return msgspec.convert({"metadata": meta, "data": data}, ConfigMap)


MONTH = [row(1, EAST, 100, "east/shop/web"), row(2, EAST, 50, "east/shop/web"), row(1, WEST, 7, "west/public")]
STORED = [
    config_map("2030-01", "hours", {"hub.2030-01-01": packed(MONTH), "other.2030-01-01": packed([row(1, EAST, 1000)])}),
    # The hub has stored the hour, and not yet that it is closed.
    config_map("hub", "open", {"state": packed(OpenHours({}, [row(2, EAST, 50, "east/shop/web"), row(3, HERE, 3)]))}),
    config_map(
        "held",
        "held",
        {"hub": packed([HeldPeriod(EAST, "east/shop/web", int(SPAN.start.timestamp()) + 3600, 0, 1, 2)])},
    ),
    config_map("2029-01", "hours", {"hub.2029-01-01": "of a later release"}),
]


@pytest.mark.req("F-32")
def test_each_hour_of_each_hub_counts_once() -> None:
    rows = used(stored_usage(STORED, TENANTS), SPAN)
    assert [(each.tenant, each.namespace, each.load_balancer, each.bytes_out) for each in rows] == [
        ("", "edge", HERE, 3),
        ("east", "", EAST, 1000),
        ("east", "shop", EAST, 150),
        ("west", "", WEST, 7),
    ]
    assert (rows[2].address_hours, rows[2].certificate_hours, rows[2].connections) == (23.0, 46.0, 2)
    (note,) = stored_usage(STORED, TENANTS).notes
    assert "any/fairlead-usage-2029-01" in note


@pytest.mark.req("F-32", "F-33")
def test_usage_is_summed_by_tenant_by_namespace_and_by_time() -> None:
    stored = stored_usage(STORED, TENANTS)
    by_tenant = used(stored, SPAN, by=UsageBy.TENANT)
    assert [(each.tenant, each.namespace, each.bytes_out) for each in by_tenant] == [
        ("", "", 3),
        ("east", "", 1150),
        ("west", "", 7),
    ]
    by_namespace = used(stored, SPAN, by=UsageBy.NAMESPACE, tenant="east")
    assert [(each.namespace, each.bytes_out) for each in by_namespace] == [("", 1000), ("shop", 150)]
    hours = used(stored, SPAN, by=UsageBy.TENANT, per=UsagePer.HOUR, tenant="east")
    assert [each.bytes_out for each in hours[:4]] == [1100, 50, 0, 0]
    assert [each.address_hours for each in hours] == [1.0] * 23
    for per in (UsagePer.DAY, UsagePer.MONTH):
        (total,) = used(stored, SPAN, by=UsageBy.TENANT, per=per, tenant="east")
        assert (total.bytes_out, total.address_hours) == (1150, 23.0)


@pytest.mark.req("F-32")
@pytest.mark.parametrize(
    ("subject", "namespace", "expected"),
    [
        ("svc/web", "shop", {EAST}),
        ("svc/east/shop/web", "", {EAST}),
        ("tcplb/shop.web", "tenant-east", {EAST}),
        ("east/shop/web", "", {EAST}),
        ("", "shop", {EAST}),
        ("", "tenant-west", {WEST}),
        ("httplb/public", "tenant-west", {WEST}),
        ("lb/db", "edge", {HERE}),
        ("svc/other", "shop", set[str]()),
    ],
)
def test_a_load_balancer_is_named_as_other_verbs_name_it(subject: str, namespace: str, expected: set[str]) -> None:
    rows = used(stored_usage(STORED, TENANTS), SPAN, selection=selection_of(subject, namespace, ""))
    assert {each.load_balancer for each in rows} == expected


@pytest.mark.req("F-32")
def test_an_origin_cannot_pose_as_another_tenant_or_as_a_formula() -> None:
    rows = [row(1, EAST, 1, "west/shop/web"), row(2, EAST, 1, "east/=cmd()/web"), row(3, EAST, 1, 'east/a"b/web')]
    stored = [config_map("2030-01", "hours", {"hub.2030-01-01": packed(rows)})]
    lines = csv_lines(used(stored_usage(stored, TENANTS), SPAN, by=UsageBy.NAMESPACE), None)
    parsed = list(csv.DictReader(lines))
    assert [(each["tenant"], each["namespace"], each["bytes_out"]) for each in parsed] == [
        ("east", "", "2"),
        ("east", "shop", "1"),
    ]


@pytest.mark.req("F-32")
def test_prices_give_the_cost(tmp_path: Path) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text("currency: EUR\ngibOut: 0.5\naddressHour: 0.01\n")
    prices = read_prices(file)
    assert prices == Prices("EUR", gib_out=0.5, address_hour=0.01)
    stored = [config_map("2030-01", "hours", {"hub.2030-01-01": packed([row(1, EAST, 4 * 1024**3)])}), STORED[2]]
    rows = used(stored_usage(stored, TENANTS), SPAN, by=UsageBy.TENANT, prices=prices)
    assert [each.cost for each in rows] == [pytest.approx(2.23)]
    assert csv_lines(rows, prices)[0].endswith("cost,currency")
    assert "COST EUR" in lines_of(rows, SPAN, prices)[1]


@pytest.mark.req("F-32")
@pytest.mark.parametrize("text", ["gibOt: 1", "- 1", "gibOut: free", "{", "\x00"])
def test_a_wrong_file_of_prices_names_the_option_and_the_fields(tmp_path: Path, text: str) -> None:
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    with pytest.raises(BadConfiguration, match=r"--prices: .*gibOut"):
        read_prices(file)


def test_a_file_of_prices_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadConfiguration, match=r"--prices: .*missing"):
        read_prices(tmp_path / "missing")


@pytest.mark.req("F-32")
def test_spans_of_time() -> None:
    now = datetime(2030, 3, 5, 12, 40, tzinfo=UTC)
    assert span_of("", "", now) == UsageSpan(datetime(2030, 3, 1, tzinfo=UTC), now)
    assert span_of("7d", "", now).start == datetime(2030, 2, 26, 12, tzinfo=UTC)
    assert span_of("90m", "", now).start == datetime(2030, 3, 5, 11, tzinfo=UTC)
    month = UsageSpan(datetime(2029, 12, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC))
    assert span_of("", "2029-12", now) == month
    assert span_of("", "2030-03", now).end == now


@pytest.mark.parametrize(
    ("since", "month", "names"),
    [
        ("7", "", "--since"),
        ("-1d", "", "--since"),
        ("9999d", "2030-01", "--month"),
        ("", "2030-13", "--month"),
        ("", "x", "--month"),
    ],
)
def test_a_wrong_span_names_the_option(since: str, month: str, names: str) -> None:
    with pytest.raises(BadConfiguration, match=names):
        span_of(since, month, datetime(2030, 3, 5, tzinfo=UTC))


def test_an_answer_without_usage_has_a_sentence() -> None:
    assert lines_of([], SPAN, None) == ["From 2030-01-01T00:00:00Z to 2030-01-02T00:00:00Z: no usage is stored."]


@pytest.mark.req("F-33")
def test_usage_is_summed_by_the_sub_tenant_that_a_namespace_had() -> None:
    hour, web, api = "2030-01-01T10", "TCPLoadBalancer/tenant-east/shop.web", "TCPLoadBalancer/tenant-east/cart.api"
    rows = [
        UsageRow(hour, web, "east/shop/web", bytes_out=1, subtenant="payments"),
        UsageRow(hour, api, "east/cart/api", bytes_out=2, subtenant="payments"),
        UsageRow("2030-01-01T09", web, "east/shop/web", bytes_out=4),
    ]
    held = [HeldPeriod(api, "east/cart/api", int(SPAN.start.timestamp()), 0, 1, 0, "payments")]
    stored = StoredUsage(rows, held, TENANTS)
    sums = used(stored, SPAN, by=UsageBy.SUBTENANT)
    assert [(row.tenant, row.subtenant, row.namespace, row.bytes_out) for row in sums] == [
        ("east", "payments", "", 3),
        ("east", "shop", "", 4),
    ]
    assert sums[0].address_hours > 0
    assert "SUB-TENANT" in lines_of(sums, SPAN, None)[1]
