"""Gateways with their ListenerSets, file by file: ``<case>.in.json``, and plan and statuses in ``<case>.out.json``.

``make golden`` rewrites what comes out.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from fairlead.agent.sources.gateway.listeners import plan_gateway
from fairlead.agent.sources.gateway.plan import GatewayPlan, GatewayView, ObjectName, config_maps_named, secrets_named
from fairlead.agent.sources.gateway.reports import GatewayObjects, plan_infrastructure
from fairlead.agent.sources.gateway.status import gateway_status, listener_set_status
from fairlead.agent.sources.http import CertificateState
from fairlead.api.gateway import Gateway, GatewayStatus, ListenerSet, ListenerSetStatus, ReferenceGrant
from fairlead.api.httploadbalancer import HTTPLoadBalancer, HTTPLoadBalancerStatus, RefusedPartStatus
from fairlead.api.kubernetes import Ingress, LoadBalancerStatus
from fairlead.api.meta import ObjectMeta, WireCondition
from fairlead.api.tcploadbalancer import TargetType
from tests.golden.translate.golden_views import dump, read_view

HERE = Path(__file__).parent
NOW = "2026-01-01T00:00:00Z"

Golden = Callable[[Path, str], None]


class Answer(msgspec.Struct, frozen=True):
    """What the hub says of the present version: condition Programmed, the address, and refused parts."""

    status: str = "True"
    reason: str = "Programmed"
    message: str = ""
    address: str = ""
    refused: tuple[RefusedPartStatus, ...] = ()


class Case(msgspec.Struct, frozen=True, rename="camel"):
    """A Gateway with all that its translation depends on; names of other objects are "namespace/name"."""

    gateway: Gateway
    load_balancer_class: str = ""
    listener_sets: tuple[ListenerSet, ...] = ()
    namespaces: dict[str, dict[str, str]] = {}
    grants: tuple[ReferenceGrant, ...] = ()
    certificates: dict[str, CertificateState] = {}
    ca_bundles: dict[str, str] = {}
    targets: TargetType = "Pod"
    routes: dict[str, int] = {}
    hub: Answer | None = None


class Outcome(msgspec.Struct, frozen=True, rename="camel"):
    """All that comes of a case."""

    plan: GatewayPlan
    status: GatewayStatus
    listener_sets: dict[str, ListenerSetStatus]
    infrastructure: GatewayObjects = GatewayObjects()


def outcome(case: Case) -> Outcome:
    """Return what a case comes to."""
    gateway = case.gateway
    certificates = {_name(key): state for key, state in case.certificates.items()}
    bundles = {_name(key): bundle for key, bundle in case.ca_bundles.items()}
    named = {key for each in (gateway, *case.listener_sets) for key in secrets_named(each)}
    assert set(certificates) <= named, "a certificate that is not named"
    assert set(bundles) <= config_maps_named(gateway), "a ConfigMap that is not named"
    plan = plan_gateway(
        GatewayView(
            gateway=gateway,
            load_balancer_class=case.load_balancer_class,
            listener_sets=case.listener_sets,
            namespaces=case.namespaces,
            grants=case.grants,
            certificates=certificates,
            ca_bundles=bundles,
            targets=case.targets,
        )
    )
    hub = _hub(plan, case.hub)
    status = gateway_status(plan, gateway, attached=case.routes, hub=hub, now=NOW)
    return Outcome(
        plan=plan,
        status=status,
        listener_sets={
            str(each.key): listener_set_status(plan, each, attached=case.routes, hub=hub, now=NOW)
            for each in case.listener_sets
        },
        infrastructure=plan_infrastructure(plan, gateway, [each.value for each in status.addresses or ()]),
    )


def _hub(plan: GatewayPlan, answer: Answer | None) -> HTTPLoadBalancer | None:
    if answer is None or plan.spec is None:
        return None
    condition = WireCondition("Programmed", answer.status, answer.reason, answer.message, observed_generation=1)
    addresses = [Ingress(ip=answer.address)] if answer.address else []
    return HTTPLoadBalancer(
        metadata=ObjectMeta(name=plan.load_balancer, generation=1),
        spec=plan.spec,
        status=HTTPLoadBalancerStatus(
            observed_generation=1,
            conditions=[condition],
            refused=answer.refused,
            load_balancer=LoadBalancerStatus(addresses),
        ),
    )


def _name(text: str) -> ObjectName:
    namespace, _, name = text.partition("/")
    return namespace, name


def cases() -> list[str]:
    return sorted(path.name.removesuffix(".in.json") for path in HERE.glob("*.in.json"))


@pytest.mark.parametrize("case", cases())
@pytest.mark.req("G-22")
def test_gateway(case: str, golden: Golden) -> None:
    golden(HERE / f"{case}.out.json", dump(outcome(read_view(HERE / f"{case}.in.json", Case))))


def test_every_golden_file_has_its_case() -> None:
    assert {path.name.removesuffix(".out.json") for path in HERE.glob("*.out.json")} == set(cases())
