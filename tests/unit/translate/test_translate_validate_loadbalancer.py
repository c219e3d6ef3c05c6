"""What a LoadBalancer and its groups may not ask for, before any provider is asked."""

from __future__ import annotations

import msgspec
import pytest

from fairlead.model.condition import ConditionReason
from fairlead.model.contract import AllocationKind
from fairlead.testing.builders import HTTP
from fairlead.translate.loadbalancer import decide_loadbalancer, merged_parameters
from fairlead.translate.view import GroupView
from tests.unit.translate.translate_builders import CAPABLE, accepted, class_, group, lb, view


@pytest.mark.parametrize(
    ("of_class", "spec", "field"),
    [
        ({"url": "a"}, {"parameters": {"url": "b"}}, "spec.parameters.url"),
        ({"url": "a"}, {"existing": {"url": "b"}}, "spec.existing.url"),
        ({}, {"parameters": {"socket": "/s"}}, "spec.parameters.socket"),
        ({}, {"existing": {"timeout.ensureBackend": "9s"}}, "spec.existing.timeout.ensureBackend"),
        ({"url": "a"}, {"parameters": {"url": "a", "size": "s"}}, ""),
        ({"socket": "/s"}, {"existing": {"socket": "/s"}}, ""),
    ],
)
def test_what_a_class_sets_is_not_a_load_balancers_to_set(of_class, spec, field):
    owner, load_balancer = class_(of_class), lb(**spec)
    result = decide_loadbalancer(view(load_balancer, owner))
    if not field:
        assert result.desired.spec.parameters == {**of_class, **spec.get("parameters", {}), **spec.get("existing", {})}
        return
    assert (result.desired, accepted(result).status) == (None, False)
    assert accepted(result).message.startswith(f"{field}: ")
    assert "create another LoadBalancer" in accepted(result).message
    assert of_class.items() <= merged_parameters(load_balancer, owner).items(), "the class counts in any case"


def test_a_weight_where_there_are_none_is_refused():
    capable = msgspec.structs.replace(CAPABLE, weights=False)
    for weight, taken in (("1", True), ("2", False)):
        the_view = view(groups=[GroupView(group(parameters={"weight": weight}))])
        result = decide_loadbalancer(msgspec.structs.replace(the_view, providers={"p": capable}))
        assert bool(result.desired.targets[HTTP]) is taken


def test_a_class_of_the_hubs_own_proxies_is_for_services():
    ours = msgspec.structs.replace(CAPABLE, allocation=AllocationKind.ADDRESS)
    result = decide_loadbalancer(msgspec.structs.replace(view(), providers={"p": ours}))
    assert result.desired is None
    assert (accepted(result).status, accepted(result).reason) == (False, ConditionReason.INVALID)
    assert accepted(result).message.startswith("spec.className: LoadBalancerClass 'edge' is for Services")


@pytest.mark.req("F-11", "F-13")
@pytest.mark.parametrize(
    ("spec", "part"),
    [
        ({"healthCheck": {"type": "http", "path": "healthz"}}, "spec.healthCheck: path is 'healthz'"),
        ({"healthCheck": {"type": "tcp", "interval": "0s"}}, "spec.healthCheck: interval is '0s'"),
        ({"healthCheck": {"port": 8080}}, "spec.healthCheck: port needs a type"),
        ({"healthCheck": {"tls": False}}, "spec.healthCheck: tls needs a type"),
        ({"healthCheck": {"caBundle": "PEM"}}, "spec.healthCheck.caBundle: no certificate in PEM"),
        ({"healthCheck": {"type": "grpc"}}, "spec.healthCheck: this class has http, tcp checks and no grpc checks"),
        ({"outlierDetection": {"consecutive5xx": 5}}, "spec.outlierDetection: this class has none"),
    ],
)
def test_wrong_health_checks_name_the_field(spec, part):
    capable = msgspec.structs.replace(CAPABLE, health_checks=frozenset({"tcp", "http"}), outlier_detection=False)
    result = decide_loadbalancer(msgspec.structs.replace(view(lb(**spec)), providers={"p": capable}))
    assert (accepted(result).status, accepted(result).reason) == (False, ConditionReason.INVALID)
    assert accepted(result).message.startswith(part)
