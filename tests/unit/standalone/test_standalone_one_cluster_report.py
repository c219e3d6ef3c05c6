"""What ``fairlead run`` prints says what is served, where, and what is missing."""

from __future__ import annotations

from pathlib import Path

from fairlead.standalone.one_machine import RunFacts, report
from fairlead.translate.addresses import AddressRanges


def lines(
    pool: str,
    *,
    ingresses: bool = True,
    gateways: bool = True,
    missing: tuple[str, ...] = (),
    stop_proxy: bool = False,
    chosen_pool: bool = False,
) -> list[str]:
    facts = RunFacts(
        server="https://api:6443",
        pool=AddressRanges.parse(pool),
        data_dir=Path("/var/lib/fairlead"),
        ingresses=ingresses,
        gateways=gateways,
        missing=missing,
        stop_proxy=stop_proxy,
        chosen_pool=chosen_pool,
    )
    return report(facts)


def test_everything_is_served_at_addresses_of_a_network() -> None:
    first, second, third = lines("192.0.2.0/24")
    assert first == (
        "Serving on this machine, for https://api:6443: Services of type LoadBalancer, Ingresses of class fairlead and "
        "Gateways of class fairlead."
    )
    assert "192.0.2.0/24 (254 addresses); your network has to route them" in second
    assert "Envoy still serves" in third
    assert "fairlead standalone --stop --data-dir /var/lib/fairlead" in third


def test_an_envoy_that_is_to_end_with_the_command_is_not_said_to_go_on() -> None:
    third = lines("192.0.2.0/24", stop_proxy=True)[2]
    assert "still serves" not in third
    assert "Envoy ends with this command (--stop-proxy)" in third
    assert "fairlead standalone --stop --data-dir /var/lib/fairlead" in third


def test_loopback_addresses_are_for_this_machine_only() -> None:
    assert "which only this machine reaches" in lines("127.200.0.0/16")[1]
    assert "--address-pool" in lines("127.200.0.0/16")[1]


def test_the_flag_that_was_given_is_not_recommended() -> None:
    text = lines("127.5.0.0/24", chosen_pool=True)[1]
    assert "which only this machine reaches" in text
    assert "--address-pool" not in text


def test_missing_features_are_listed() -> None:
    text = lines("192.0.2.0/24", ingresses=False, gateways=False, missing=("a right", "a port"))
    assert text[0].endswith(": Services of type LoadBalancer.")
    assert text[3:5] == ["Missing: a right", "Missing: a port"]
    assert text[5].startswith("Missing: Gateways are not served")
