"""Faults of the machine, planted one by one."""

from __future__ import annotations

from typing import Any

import pytest
from doctor_facts import only, with_fields, without

from fairlead.api.kubernetes import SERVICES
from fairlead.doctor.checks import examine

pytestmark = pytest.mark.req("OP-5")


@pytest.mark.parametrize(
    ("check", "fields", "part"),
    [
        ("envoy", {"envoy_problem": "there is no Envoy"}, "there is no Envoy"),
        ("low-ports", {"low_ports_problem": "may not open port 80"}, "may not open port 80"),
        ("files", {"file_limit": 1024}, "1024 files"),
        ("outgoing-ports", {"ephemeral_ports": (40_000, 40_999)}, "only 1000 ports"),
        ("data-dir", {"data_dir_problem": "this user may not write there"}, "may not write"),
        ("data-dir", {"free_bytes": 5 << 20}, "5 MiB are free"),
        ("lost-envoys", {"lost_envoys": ("/tmp/gone",)}, "directory was deleted"),
    ],
)
def test_a_fault_of_this_machine(check: str, fields: dict[str, Any], part: str) -> None:
    assert part in only(with_fields("machine", **fields), check).fault


def test_a_listener_in_the_range_of_outgoing_ports() -> None:
    facts = without("hub", SERVICES)  # proxies in a cluster do not use the ports of this machine
    assert facts.hub is not None
    facts.hub.objects["tcploadbalancers.fairlead.dev"][0]["spec"]["ports"] = [{"port": 40_000}]
    finding = only(facts, "outgoing-ports")
    assert "40000" in finding.fault
    assert finding.fix.endswith("ip_local_reserved_ports=40000")


def test_a_machine_without_a_data_directory_is_not_a_fault() -> None:
    assert examine(with_fields("machine", data_dir="", data_dir_problem="x")) == []
