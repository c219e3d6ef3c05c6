"""What the Event says of a load balancer without a target: what is missing in the member, and what shows it."""

from __future__ import annotations

import pytest

from fairlead.agent.events import why_no_targets
from tests.unit.agent.agent_builders import endpoint, service, slice_of

APP = {"app": "web", "tier": "front"}
NAMED = [{"name": "http", "port": 80, "targetPort": "web-port"}]
OTHER_PORT = [{"name": "metrics", "port": 9000, "protocol": "TCP"}]
SLICES = "kubectl describe endpointslices -n shop -l kubernetes.io/service-name=web"
PODS = "kubectl get pods -n shop -l app=web,tier=front"


@pytest.mark.req("X-2")
@pytest.mark.parametrize(
    ("of", "slices", "targets", "expected"),
    [
        (service(selector=APP), (), "Pod", f"the Service's selector matches no pod with an address: {PODS}"),
        (
            service(),
            (slice_of(),),
            "Pod",
            "the Service has no selector, and no EndpointSlice of its own has an endpoint: "
            "kubectl get endpointslices -n shop -l kubernetes.io/service-name=web",
        ),
        (
            service(selector=APP),
            (slice_of(endpoint("10.0.0.1", ready=False)),),
            "Pod",
            f"none of its pods is ready: {PODS}",
        ),
        (service(), (slice_of(endpoint("10.0.0.1", ready=False)),), "Pod", f"none of its endpoints is ready: {SLICES}"),
        (
            service(selector=APP, ports=NAMED),
            (slice_of(endpoint("10.0.0.1"), ports=OTHER_PORT),),
            "Pod",
            f"the pods have no container port named 'web-port', the targetPort of TCP/80 (http): {SLICES}",
        ),
        (
            service(),
            (slice_of(endpoint("10.0.0.1"), ports=OTHER_PORT),),
            "Pod",
            f"the EndpointSlices have no port for TCP/80 (http); ports match by name and protocol: {SLICES}",
        ),
        (service(selector=APP), (slice_of(endpoint("10.0.0.1")),), "Pod", "look at its EndpointSlices"),
        (service(selector=APP), (), "Node", "no node of the cluster takes traffic: kubectl get nodes"),
        (
            service(selector=APP, externalTrafficPolicy="Local"),
            (),
            "Node",
            f"the Service's selector matches no pod with an address: {PODS}",
        ),
        (
            service(selector=APP, externalTrafficPolicy="Local"),
            (slice_of(endpoint("10.0.0.1")),),
            "Node",
            "no node with a ready pod takes traffic (externalTrafficPolicy Local): kubectl get nodes",
        ),
        (service(), (), "Address", "the cluster's own load balancer shows no address that may be used"),
    ],
)
def test_missing_parts_are_named(of, slices, targets, expected):
    assert why_no_targets(of, slices, targets) == expected
