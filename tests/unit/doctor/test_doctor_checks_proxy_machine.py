"""Faults of a proxy machine, planted one by one."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from doctor_facts import NOW, healthy, only, with_fields

from fairlead.doctor.checks import examine
from fairlead.doctor.facts import AskedAddress, KernelSetting, LinkFacts, ReachedHub
from fairlead.model.machine import SessionState

pytestmark = [pytest.mark.req("P-28"), pytest.mark.req("OP-5")]
HUB, XDS = "192.0.2.2:7443", "192.0.2.2:7444"
ETH0 = "net.ipv4.conf.eth0"


@pytest.mark.parametrize(
    ("check", "fields", "parts"),
    [
        ("proxy-state", {"problem": "this machine has not joined a hub"}, ("not joined", "fairlead proxy token")),
        ("proxy-state", {"directory_problem": "Read-only file system"}, ("Read-only file system", "df -h")),
        ("proxy-state", {"free_bytes": 5 << 20}, ("5 MiB are free", "df -h")),
        ("proxy-process", {"runs": False}, ("does not run", "systemctl start fairlead-proxy")),
        ("proxy-process", {"missing_capabilities": ("CAP_NET_RAW",)}, ("CAP_NET_RAW", "AmbientCapabilities")),
        ("proxy-envoy", {"envoy_answers": False}, ("does not answer", "journalctl")),
        (
            "proxy-certificate",
            {"certificate_ends": NOW - timedelta(days=1)},
            ("2029-12-31", "fairlead proxy remove m1"),
        ),
        ("proxy-certificate", {"renew_at": NOW - timedelta(days=1)}, ("2030-03-02", "journalctl")),
        (
            "proxy-hubs",
            {"hubs": (ReachedHub(HUB, XDS, problem="the hub does not answer: timed out"),)},
            ("does not answer", "nc -vz 192.0.2.2 7443"),
        ),
        (
            "proxy-hubs",
            {"hubs": (ReachedHub(HUB, XDS, xds_problem="Connection refused"),)},
            ("Connection refused", "nc -vz 192.0.2.2 7444"),
        ),
        ("proxy-clock", {"hubs": (ReachedHub(HUB, XDS, ahead_s=3600.0),)}, ("3600 s ahead of", "timedatectl")),
        ("proxy-clock", {"hubs": (ReachedHub(HUB, XDS, ahead_s=-12.0),)}, ("12 s behind", HUB)),
        (
            "proxy-settings",
            {"settings": (KernelSetting("net.ipv4.ip_nonlocal_bind", 0),)},
            ("cannot open listeners", "sysctl -w net.ipv4.ip_nonlocal_bind=1"),
        ),
        (
            "proxy-settings",
            {"settings": (KernelSetting(f"{ETH0}.rp_filter", 1),)},
            ("dropped", f"sysctl -w {ETH0}.rp_filter=2"),
        ),
        (
            "proxy-settings",
            {"settings": (KernelSetting(f"{ETH0}.arp_ignore", 0),)},
            ("answers ARP", f"sysctl -w {ETH0}.arp_ignore=1"),
        ),
        (
            "proxy-settings",
            {"settings": (KernelSetting(f"{ETH0}.arp_announce", 0),)},
            ("its MAC", f"sysctl -w {ETH0}.arp_announce=2"),
        ),
        (
            "proxy-mtu",
            {"links": (LinkFacts("eth0", True, 9000, ("192.0.2.0/24",), small=("192.0.2.3",)),)},
            ("192.0.2.3", "9000 bytes"),
        ),
        ("proxy-ageing", {"ageing_s": {"br0": 15.0}}, ("15 s", "ageing_time")),
        (
            "proxy-owners",
            {"addresses": (AskedAddress("192.0.2.10", "eth0", "02::1", True, ("02:ff::1",)),)},
            ("02::1 (this machine) and 02:ff::1", "02:ff::1"),
        ),
        (
            "proxy-owners",
            {"addresses": (AskedAddress("192.0.2.10", "eth0", "02::1", False, ("02::2", "02:ff::1")),)},
            ("02::2 and 02:ff::1", "bridge fdb"),
        ),
        (
            "proxy-sessions",
            {"sessions": (SessionState(peer="tor", state="Active", problem="check that it has the same password"),)},
            ("same password", "tcp port 179"),
        ),
        ("proxy-sessions", {"sessions": ()}, ("no BGP speaker runs", "journalctl")),
        (
            "proxy-bfd",
            {"sessions": (SessionState(peer="tor", state="Established", up=True, bfd="Down"),)},
            ("BFD is Down", "udp port 3784"),
        ),
    ],
)
def test_a_fault_of_this_proxy_machine(check: str, fields: dict[str, Any], parts: tuple[str, ...]) -> None:
    finding = only(with_fields("proxy", **fields), check)
    text = f"{finding.object} {finding.fault} {finding.fix}"
    assert [part for part in parts if part not in text] == [], text


@pytest.mark.parametrize(
    "fields",
    [
        # One interface: replies leave by it, whatever the filter.
        {
            "settings": (KernelSetting(f"{ETH0}.rp_filter", 1),),
            "links": (LinkFacts("eth0", True, 1500, ("192.0.2.0/24",)),),
        },
        # No address of a load balancer is in the subnet of the interface.
        {"settings": (KernelSetting("net.ipv4.conf.eth1.7.arp_ignore", 0),)},
        {"addresses": (AskedAddress("192.0.2.10", "eth0", "02::1", False, ("02::2",)),)},
        {"certificate_ends": NOW + timedelta(days=1), "renew_at": NOW - timedelta(minutes=5)},
        {"hubs": (ReachedHub(HUB, XDS, ahead_s=-3.0),)},
        {"sessions": (SessionState(peer="tor", state="Established", up=True, bfd=""),)},
    ],
)
def test_harmless_states_are_not_reported(fields: dict[str, Any]) -> None:
    assert examine(with_fields("proxy", **fields)) == []


def test_without_a_proxy_machine_its_checks_are_silent() -> None:
    assert examine(msgspec.structs.replace(healthy(), proxy=None)) == []


def test_the_interface_of_a_setting_may_have_dots() -> None:
    assert KernelSetting("net.ipv4.conf.eth1.7.arp_ignore", 0).interface == "eth1.7"
    assert KernelSetting("net.ipv4.ip_nonlocal_bind", 0).interface == ""
