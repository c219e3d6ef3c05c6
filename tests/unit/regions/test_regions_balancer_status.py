"""A PoolService's status: what its load balancer says, and an address that stays while no other takes its place."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from regions_builders import pool_service

from fairlead.api.poolservice import PoolServiceStatus
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.model.condition import ConditionReason
from fairlead.publish.objects import Refused
from fairlead.regions.balancer_plan import build_status

NOW = "2030-01-01T00:00:00Z"
PROGRAMMED = {"type": "Programmed", "status": "True", "reason": "Programmed"}


def load_balancer(
    address: str = "", *, conditions: Any = (), deleting: bool = False, targets: str = ""
) -> TCPLoadBalancer:
    meta = {"name": "x", "deletionTimestamp": NOW} if deleting else {"name": "x"}
    ingress = [{"ip": address}] if address else None
    status = {"loadBalancer": {"ingress": ingress}, "conditions": list(conditions), "targets": targets}
    return msgspec.convert({"metadata": meta, "spec": {"ports": [{"port": 80}]}, "status": status}, TCPLoadBalancer)


def summary(status: PoolServiceStatus) -> tuple[str, list[tuple[str, str, str]]]:
    return status.address, [(each.type, each.status, each.reason) for each in status.conditions or ()]


@pytest.mark.req("O-24", "O-25")
def test_address_targets_and_conditions_are_mirrored() -> None:
    served = load_balancer("192.0.2.1", conditions=[PROGRAMMED], targets="1/2")
    status = build_status(pool_service("test", "a"), served, None, now=NOW)
    assert summary(status) == ("192.0.2.1", [("Programmed", "True", "Programmed")])
    assert status.targets == "1/2"


@pytest.mark.req("F-24")
def test_what_the_hub_says_of_an_earlier_spec_is_not_programmed() -> None:
    served = load_balancer("192.0.2.1", conditions=[PROGRAMMED])
    changed = msgspec.structs.replace(served, metadata=msgspec.structs.replace(served.metadata, generation=2))
    status = build_status(pool_service("test", "a"), changed, None, now=NOW)
    assert summary(status) == ("192.0.2.1", [("Programmed", "False", "Pending")])


def test_without_an_answer_it_is_pending() -> None:
    pending = ("", [("Programmed", "False", "Pending")])
    assert summary(build_status(pool_service("test", "a"), None, None, now=NOW)) == pending
    assert summary(build_status(pool_service("test", "a"), load_balancer(), None, now=NOW)) == pending


def test_a_rejection_is_accepted_false_while_the_old_version_serves() -> None:
    refused = Refused(ConditionReason.INVALID, "why")
    status = build_status(
        pool_service("test", "a"), load_balancer("192.0.2.1", conditions=[PROGRAMMED]), refused, now=NOW
    )
    assert summary(status) == ("192.0.2.1", [("Accepted", "False", "Invalid"), ("Programmed", "True", "Programmed")])


def test_an_address_stays_until_its_load_balancer_is_being_deleted() -> None:
    known = pool_service("test", "a", ingress=["192.0.2.1"])
    assert build_status(known, None, None, now=NOW).address == "192.0.2.1"
    assert build_status(known, load_balancer(), None, now=NOW).address == "192.0.2.1"
    assert build_status(known, load_balancer("192.0.2.2"), None, now=NOW).address == "192.0.2.2"
    assert build_status(known, load_balancer("192.0.2.1", deleting=True), None, now=NOW).address == ""


def test_twice_is_once() -> None:
    served = load_balancer("192.0.2.1", conditions=[PROGRAMMED], targets="1/1")
    first = build_status(pool_service("test", "a"), served, None, now=NOW)
    again = msgspec.structs.replace(pool_service("test", "a"), status=first)
    assert build_status(again, served, None, now="2031-01-01T00:00:00Z") == first
