"""A pool that this machine cannot serve is refused before anything starts; loopback backends need a loopback API."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairlead.errors import BadConfiguration
from fairlead.standalone.hub_settings import HubSettings, is_loopback


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
    ("server", "loopback"),
    [
        ("http://127.0.0.1:1", True),
        ("https://[::1]:6443", True),
        ("https://localhost", True),
        ("https://10.0.0.1:6443", False),
        ("https://hub.example.com", False),
    ],
)
def test_loopback_backends_need_a_loopback_api(server: str, loopback: bool) -> None:
    assert is_loopback(server) is loopback
