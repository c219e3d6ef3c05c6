"""Rules of TLSRoutes, TCPRoutes and UDPRoutes."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.agent.sources.gateway.http_rules import BackendRefs
from fairlead.agent.sources.gateway.routes import connection_rules
from fairlead.api.gateway import ConnectionRule
from fairlead.model.http import BackendRef, Rule
from tests.unit.agent.gateway_builders import ref, service


@pytest.mark.req("G-99")
def test_backends_with_weights() -> None:
    services = {("infra", "web"): service()}
    refs = BackendRefs(kind="TCPRoute", namespace="infra", services=services, grants=(), policies={})
    rule = {"name": "n", "backendRefs": [ref(weight=7), ref("none", weight=3), ref()]}
    assert connection_rules([msgspec.convert(rule, ConnectionRule), ConnectionRule()], refs) == (
        Rule(
            name="n", backends=(BackendRef("infra/web:80/tcp", 7), BackendRef("", 3), BackendRef("infra/web:80/tcp", 1))
        ),
        Rule(),
    )
