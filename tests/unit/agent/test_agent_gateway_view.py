"""Which other objects a Gateway names."""

from __future__ import annotations

import pytest

from fairlead.agent.sources.gateway.plan import config_maps_named, secrets_named
from tests.unit.agent.gateway_objects import CA, gateway, http, https


@pytest.mark.req("G-43")
def test_the_objects_that_a_gateway_names() -> None:
    references = [{"name": "a"}, {"name": "b", "namespace": "certs"}, {"name": "c", "kind": "ConfigMap"}]
    validation = {"validation": {"caCertificateRefs": [CA, {"kind": "Secret", "name": "x"}]}}
    other = {"validation": {"caCertificateRefs": [{**CA, "name": "other", "namespace": "certs"}]}}
    of = gateway(
        http(),
        https(tls={"certificateRefs": references}),
        tls={
            "backend": {"clientCertificateRef": {"name": "client"}},
            "frontend": {"default": validation, "perPort": [{"port": 8443, "tls": other}]},
        },
    )
    assert secrets_named(of) == {("infra", "a"), ("certs", "b"), ("infra", "client")}
    assert config_maps_named(of) == {("infra", "ca"), ("certs", "other")}
    assert secrets_named(gateway(http())) == config_maps_named(gateway(http())) == frozenset()
