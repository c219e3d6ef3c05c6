"""What the page says of each object: the words of ``fairlead status``, and nothing that changes by itself."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest

from fairlead.api.hostname import Hostname, HostnameSpec, HostnameStatus
from fairlead.api.managedcertificate import ManagedCertificate, ManagedCertificateSpec, ManagedCertificateStatus
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.names import LABEL_POOL_SERVICE_SERVICE
from fairlead.api.poolservice import PoolService, PoolServiceSpec, PoolServiceStatus
from fairlead.page.items import certificate_item, load_balancer_item, member_item, name_item, region_item
from fairlead.testing.fleet_objects import (
    EAST,
    GOOD,
    NOW,
    condition,
    fleet_of,
    http_load_balancer,
    lease,
    load_balancer,
    status,
)


def at(when: str, *args: str) -> WireCondition:
    return msgspec.structs.replace(condition(*args), last_transition_time=when)


@pytest.mark.req("OP-10")
def test_a_load_balancer_says_what_status_says() -> None:
    lb = load_balancer(*GOOD, at("2029-12-31T01:00:00Z", "Serving", "False", "NoHealthyTargets", "none is healthy"))
    item = load_balancer_item(lb, EAST)
    assert (item.state, item.reason, item.since) == ("NotServing", "NoHealthyTargets", "2029-12-31T01:00:00Z")
    assert (item.member, item.region, item.title) == ("east", "eu", "east/default/web")
    assert list(item.problems) == status(lb=lb).problems
    assert item.command == "fairlead explain tcplb/tenant-east/default.web"


def test_what_serves_does_so_since_it_was_seen_to() -> None:
    lb = load_balancer(*GOOD, at("2029-12-30T00:00:00Z", "Serving", "True", "TargetsHealthy", ""))
    item = load_balancer_item(lb, None)
    assert (item.state, item.problems, item.since, item.member) == ("Serving", (), "2029-12-30T00:00:00Z", "")
    assert load_balancer_item(http_load_balancer(*GOOD, routes=4), EAST).routes == 4


@pytest.mark.parametrize(("age_s", "connection", "heard"), [(3, "Engaged", ""), (100, "Stale", "2029-12-31T23:58:20Z")])
def test_a_member_is_heard_or_was_last(age_s: float, connection: str, heard: str) -> None:
    item = member_item(EAST, lease(age_s), NOW)
    assert (item.connection, item.heard) == (connection, heard)
    assert bool(item.problems) == (connection != "Engaged")


def test_while_a_member_is_heard_its_item_stays_the_same() -> None:
    assert member_item(EAST, lease(1), NOW) == member_item(EAST, lease(30), NOW)
    assert member_item(EAST, None, NOW).connection == "Pending"


def test_certificates_have_their_end_and_names_their_zone() -> None:
    ends = (NOW + timedelta(days=3)).isoformat()
    managed = ManagedCertificate(
        metadata=ObjectMeta(name="c", namespace="tenant-east"),
        spec=ManagedCertificateSpec(hosts=("shop.example",), issuer="le"),
        status=ManagedCertificateStatus(state="Issued", digest="1", not_after=ends),
    )
    item = certificate_item(managed, NOW)
    assert (item.ends, item.issuer, item.state) == (ends, "le", "NeedsAttention")
    assert "shop.example ends at" in item.problems[0]
    bad = condition("Ready", "False", "Refused", "its server refuses it")
    host = Hostname(
        metadata=ObjectMeta(name="h", namespace="fairlead-system"),
        spec=HostnameSpec(host="shop.example"),
        status=HostnameStatus(zone="z", conditions=[bad]),
    )
    assert "its server refuses it" in name_item(host).problems[0]


@pytest.mark.req("OP-10")
def test_the_share_of_a_region_says_what_status_says() -> None:
    obj = PoolService(
        metadata=ObjectMeta(namespace="default", name="web-north", labels={LABEL_POOL_SERVICE_SERVICE: "web"}),
        spec=PoolServiceSpec(nodepool_name="north", load_balancer_class="fairlead.dev/envoy"),
        status=PoolServiceStatus(targets="0/2", conditions=[condition("Accepted", "False", "Invalid", "no port fits")]),
    )
    item = region_item(obj)
    assert (item.id, item.service, item.region, item.state, item.reason) == (
        "default/web-north", "web", "north", "NotServing", "Invalid",
    )  # fmt: skip
    assert list(item.problems) == fleet_of(pool_services=[obj]).problems


def test_the_load_balancer_of_a_region_is_of_that_region() -> None:
    lb = load_balancer(*GOOD)
    lb = msgspec.structs.replace(lb, spec=msgspec.structs.replace(lb.spec, region="north"))
    assert load_balancer_item(lb, None).region == "north"
