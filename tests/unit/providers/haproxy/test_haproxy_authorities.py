"""Names of authorities, and what of a check over HTTPS HAProxy cannot take."""

from __future__ import annotations

from typing import Any

import pytest

from fairlead.errors import BadConfiguration
from fairlead.model.desired import FrontendSpec, Listener
from fairlead.model.health import HealthCheck, HealthRequest
from fairlead.model.keys import LoadBalancerKey
from fairlead.providers.haproxy.commands import authority_name
from fairlead.providers.haproxy.settings import settings_from_spec

KEY = LoadBalancerKey("LoadBalancer", "fleet", "api")


def spec(**request: Any) -> FrontendSpec:
    check = HealthCheck(request=HealthRequest(**request))
    parameters = {"socket": "/run/haproxy.sock", "backend": "plane"}
    return FrontendSpec(KEY, "group", (Listener(6443),), parameters=parameters, health_check=check)


def test_each_bundle_of_each_load_balancer_has_a_name_of_its_own() -> None:
    other = LoadBalancerKey("LoadBalancer", "fleet", "other")
    names = {
        authority_name("", KEY, "one"),
        authority_name("", KEY, "two"),
        authority_name("", other, "one"),
        authority_name("east", KEY, "one"),
    }
    assert len(names) == 4
    assert all(name.startswith("fl-") for name in names)


@pytest.mark.req("C-65")
@pytest.mark.parametrize("host", ["a b", "a;del server b/x", "-x", "x\nshow info", "*.example"])
def test_an_invalid_host_never_becomes_part_of_a_command(host: str) -> None:
    with pytest.raises(BadConfiguration, match=r"spec\.healthCheck\.host"):
        settings_from_spec(spec(host=host))


@pytest.mark.req("C-65")
def test_a_bundle_that_haproxy_cannot_read_in_one_piece_is_refused() -> None:
    assert settings_from_spec(spec(ca_bundle="x" * 11_000)).authority
    with pytest.raises(BadConfiguration, match=r"spec\.healthCheck\.caBundle has more than"):
        settings_from_spec(spec(ca_bundle="x" * 12_000))
