"""What a BackendGroup refers to: listeners of the load balancer, a Service, its node port and nodes."""

from __future__ import annotations

import pytest

from fairlead.model.condition import ConditionReason
from fairlead.translate.loadbalancer import resolve_group
from fairlead.translate.view import GroupView
from tests.unit.translate.translate_builders import SERVICE, group, lb, node

TCP_80 = {"port": 80, "name": "http"}
UDP_53 = {"port": 53, "protocol": "UDP", "name": "dns"}


@pytest.mark.parametrize(
    ("spec", "listeners", "missing"),
    [
        ({"static": ["10.0.0.1:80"]}, [UDP_53], "TCP listener"),
        ({"static": ["10.0.0.1:80"], "listener": "dns"}, [UDP_53], "listener 'dns' of protocol TCP"),
        ({"static": ["10.0.0.1:80"], "listener": "http"}, [TCP_80, UDP_53], ""),
        ({"service": {"name": "web", "port": {"port": 53, "protocol": "UDP"}}}, [TCP_80], "UDP listener"),
        ({"service": {"name": "web", "port": {"port": 80}}}, [TCP_80], ""),
        (
            {"service": {"name": "web", "port": {"port": 80, "listener": "dns"}}, "listener": "http"},
            [TCP_80, UDP_53],
            "listener 'dns' of protocol TCP",
        ),
    ],
)
def test_a_listener_that_is_missing_is_named(spec, listeners, missing):
    group_view = GroupView(group(**spec), service=SERVICE, nodes=(node("n1", "10.0.0.9"),))
    (condition,) = resolve_group(group_view, lb(listeners=listeners).spec.listeners, "shop/shared", set())
    assert condition.status is not bool(missing)
    if missing:
        assert condition.reason is ConditionReason.BACKEND_NOT_FOUND
        assert condition.message.startswith(f"LoadBalancer shop/shared has no {missing}; ")


def test_no_reason_hides_a_more_urgent_one():
    """Out of scope, then listeners, then the driver, then the Service, then addresses."""
    service = {"name": "web", "port": {"port": 80}}
    refused = {"10.0.0.9"}
    listeners = lb(listeners=[TCP_80]).spec.listeners
    shown = [
        resolve_group(group_view, listeners, "shop/shared", refused)[0].reason
        for group_view in (
            GroupView(group(service=service, listener="x"), out_of_scope=True, retention_error="no answer"),
            GroupView(group(service=service, listener="x"), retention_error="no answer"),
            GroupView(group(service=service), retention_error="no answer"),
            GroupView(group(service=service)),
            GroupView(group(service=service), service=SERVICE, nodes=(node("n1", "10.0.0.9"),)),
        )
    ]
    assert shown == [
        ConditionReason.OUT_OF_SCOPE,
        ConditionReason.BACKEND_NOT_FOUND,
        ConditionReason.PROVIDER_FAILED,
        ConditionReason.BACKEND_NOT_FOUND,
        ConditionReason.INVALID,
    ]
