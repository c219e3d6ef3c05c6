"""The TCP targets that a proxy would connect to.

In: the hub's objects. Out: (load balancer, host, port) of each, without doubles, ordered. Never: a connection.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from fairlead.api.kubernetes import ENDPOINT_SLICES
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_LOAD_BALANCER, LABEL_NODES, LABEL_NODES_IPV6
from fairlead.api.naming import label_value
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.doctor.facts import ApiFacts
from fairlead.doctor.reading import items, label, mapping, meta, name_of, spec


def targets_of(hub: ApiFacts) -> list[tuple[str, str, int]]:
    """Return the TCP targets of all load balancers: nodes at node ports, or pods at their own."""
    nodes: dict[str, list[JSONObject]] = defaultdict(list)
    pods: dict[tuple[str, str], list[JSONObject]] = defaultdict(list)
    for each in hub.list(ENDPOINT_SLICES):
        namespace = str(meta(each, "namespace"))
        if label(each, LABEL_NODES) is not None or label(each, LABEL_NODES_IPV6) is not None:
            nodes[namespace].append(each)
        elif (of := label(each, LABEL_LOAD_BALANCER)) is not None:
            pods[namespace, of].append(each)
    first_of: dict[tuple[str, int], str] = {}
    for lb in hub.list(TCP_LOAD_BALANCERS):
        namespace, name = str(meta(lb, "namespace")), name_of(lb)
        if spec(lb).get("targets", "Node") == "Node":
            ports = [int(port.get("nodePort") or 0) for port in items(spec(lb).get("ports")) if _is_tcp(port)]
            families = items(spec(lb).get("ipFamilies")) or ["IPv4"]
            reached = [each for each in nodes[namespace] if each.get("addressType") in families]
            pairs = [(host, port) for host in _addresses(reached) for port in ports if port]
        else:
            pairs = [pair for each in pods[namespace, label_value(name)] for pair in _endpoints(each)]
        for pair in pairs:
            first_of.setdefault(pair, f"tcplb/{namespace}/{name}")
    return [(lb, host, port) for (host, port), lb in sorted(first_of.items())]


def _endpoints(each: JSONObject) -> Iterator[tuple[str, int]]:
    for port in items(each.get("ports")):
        if _is_tcp(port) and port.get("port"):
            yield from ((host, int(port["port"])) for host in _addresses([each]))


def _addresses(slices: list[JSONObject]) -> Iterator[str]:
    for endpoint in (endpoint for each in slices for endpoint in items(each.get("endpoints"))):
        if mapping(endpoint.get("conditions")).get("ready", True) is not False:
            yield from map(str, items(endpoint.get("addresses")))


def _is_tcp(port: JSONObject) -> bool:
    return (port.get("protocol") or "TCP") == "TCP"
