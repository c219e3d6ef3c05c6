"""A pool that this machine cannot serve is refused before anything starts; loopback backends need a loopback pool."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from fairlead.errors import BadConfiguration
from fairlead.standalone.hub_settings import HubSettings
from fairlead_demo.worlds.loopback import free_port


def settings(pool: str, *, deployment: bool = False) -> HubSettings:
    return HubSettings(data_dir=Path("unused"), address_pool=pool, deployment=deployment)


def test_a_pool_of_this_machine_is_taken() -> None:
    pool = settings("127.77.0.0/24").pool()
    assert pool is not None
    assert pool[0] == "127.77.0.1"
    assert settings("").pool() is None


def test_a_pool_that_this_machine_does_not_have_needs_proxies_elsewhere() -> None:
    with pytest.raises(BadConfiguration, match=r"is not on this machine.*ip address add 192\.0\.2\.1/32"):
        settings("192.0.2.0/24").pool()
    assert settings("192.0.2.0/24", deployment=True).pool() is not None


@pytest.mark.parametrize("pool", ["nonsense", "192.0.2.0/33", "127.77.0.0/24,127.77.0.0/25"])
def test_a_pool_that_cannot_be_read_is_a_sentence(pool: str) -> None:
    with pytest.raises(BadConfiguration):
        settings(pool).pool()


@pytest.mark.parametrize(
    ("ranges", "loopback"),
    [("127.77.0.0/24", (True, False)), ("192.0.2.0/24", (False, False)), ("127.77.0.0/24,192.0.2.0/24", (False, False)),
     ("", (False, False))],
)  # fmt: skip
@pytest.mark.req("S-6")
def test_backends_are_on_loopback_only_where_load_balancers_are(
    ranges: str, loopback: tuple[bool, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An outsider who reaches a load balancer would reach the hub's pages and API through it."""
    monkeypatch.setattr("fairlead.standalone.hub_settings.check_bindable", lambda _pool: None)
    assert (settings(ranges).loopback_targets(), settings(ranges, deployment=True).loopback_targets()) == loopback


def test_a_hub_of_one_region_makes_no_names() -> None:
    with pytest.raises(BadConfiguration, match=r"--domain: .* without --region"):
        HubSettings(data_dir=Path("unused"), domain="lb.example.com", region="north").check()
    HubSettings(data_dir=Path("unused"), domain="lb.example.com").check()


@pytest.mark.req("P-1")
@pytest.mark.parametrize(
    ("listen", "deployment", "why"),
    [
        (("127.0.0.1", 0), False, "is not a port from 1 to 65534"),
        (("127.0.0.1", 65_535), False, "is not a port from 1 to 65534"),
        (("nowhere.invalid", 7443), False, "does not resolve"),
        (("192.0.2.1", 7443), False, "cannot listen on 192.0.2.1:7443"),
        (("127.0.0.1", 7443), True, "--envoy local"),
    ],
)
def test_an_address_for_machines_that_cannot_work_is_refused(
    tmp_path: Path, listen: tuple[str, int], deployment: bool, why: str
) -> None:
    settings = HubSettings(data_dir=tmp_path, machines=listen, deployment=deployment)
    with pytest.raises(BadConfiguration, match="--machines") as refused:
        settings.check()
    assert why in refused.value.sentence


@pytest.mark.req("P-1")
def test_both_ports_for_machines_have_to_be_free(tmp_path: Path) -> None:
    port = free_port()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", port))
        taken.listen()
        for first in (port, port - 1):
            with pytest.raises(BadConfiguration, match=f"127.0.0.1:{port}"):
                HubSettings(data_dir=tmp_path, machines=("127.0.0.1", first)).check()


@pytest.mark.req("P-1")
@pytest.mark.parametrize(("pool", "deployment"), [("127.200.0.0/16", False), ("192.0.2.0/28", True)])
def test_addresses_of_loopback_are_not_announced(tmp_path: Path, pool: str, deployment: bool) -> None:
    settings = HubSettings(data_dir=tmp_path, address_pool=pool, announce=True, deployment=deployment)
    with pytest.raises(BadConfiguration, match="--announce"):
        settings.check()


def test_machines_serve_addresses_that_the_hub_does_not_have(tmp_path: Path) -> None:
    settings = HubSettings(data_dir=tmp_path, address_pool="192.0.2.0/28", machines=("127.0.0.1", free_port()))
    pool = settings.pool()
    assert pool is not None
    assert not settings.loopback_targets()
