"""Which removals wait until connections have drained."""

from __future__ import annotations

from fairlead.model.keys import ListenerKey, LoadBalancerKey, Protocol
from fairlead.providers.envoy.http.names import routes_name
from fairlead.providers.envoy.provider import split_removals
from fairlead.providers.envoy.resources import ResourceType, cluster_name, encoded_resource, resource_name
from fairlead.providers.envoy.store import ResourceChange

HTTP = LoadBalancerKey("HTTPLoadBalancer", "shop", "web")
OTHER = LoadBalancerKey("HTTPLoadBalancer", "shop", "web-2")
TCP = LoadBalancerKey("TCPLoadBalancer", "shop", "db")
PORT = ListenerKey(Protocol.TCP, 80)


def gone(kind: ResourceType, name: str) -> ResourceChange:
    return ResourceChange(kind, name, None)


def removal(key: LoadBalancerKey) -> list[ResourceChange]:
    return [
        gone(ResourceType.LISTENER, resource_name(key, PORT)),
        gone(ResourceType.ROUTES, routes_name(key, 80, None)),
        gone(ResourceType.CLUSTER, cluster_name(key, "cart")),
        gone(ResourceType.ENDPOINTS, cluster_name(key, "cart")),
    ]


def test_backends_outlive_the_listener_that_goes_with_them() -> None:
    changes = removal(HTTP)
    now, later = split_removals(changes)
    assert (list(now), later) == (changes[:2], changes[2:])


def test_backends_of_another_load_balancer_go_at_once() -> None:
    others = removal(OTHER)[2:]
    now, later = split_removals([*removal(HTTP)[:2], *others])
    assert list(now)[2:] == others
    assert not later


def test_backends_go_at_once_while_the_listener_stays() -> None:
    cluster = gone(ResourceType.CLUSTER, cluster_name(HTTP, "cart"))
    listener = ResourceChange(
        ResourceType.LISTENER, resource_name(HTTP, PORT), encoded_resource(ResourceType.LISTENER, "l", b"")
    )
    assert split_removals([listener, cluster]) == ([listener, cluster], [])


def test_connections_that_are_not_of_requests_do_not_wait() -> None:
    name = resource_name(TCP, PORT)
    changes = [gone(kind, name) for kind in (ResourceType.LISTENER, ResourceType.CLUSTER, ResourceType.ENDPOINTS)]
    assert split_removals(changes) == (changes, [])
