"""The targets of a backend as EndpointSlices of a Service without selector, and which slices a change of them touches.

In: the slices that are there, changes of targets. Out: slices to write, slices to delete, targets read back. A slice
has endpoints of one port and one family, 100 at most, so a change among thousands of targets is a small write. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address

import msgspec

from fairlead.api.kubernetes import ENDPOINT_SLICES, EndpointSlice
from fairlead.api.meta import JSONObject
from fairlead.api.names import ANNOTATION_BACKEND, LABEL_SERVICE_NAME, LABEL_SLICE_MANAGED_BY, SLICE_MANAGED_BY
from fairlead.model.change import Action, TargetChange
from fairlead.model.http import Backend
from fairlead.model.keys import LoadBalancerKey, TargetKey, backend_key
from fairlead.model.observed import ObservedTarget
from fairlead.providers.controller.objects import Made, made, service_name

#: The name of the one port of each Service, by which its slices are matched.
PORT_NAME = "backend"
PER_SLICE = 100


class SliceChanges(msgspec.Struct, frozen=True):
    """The slices to write, and those without an endpoint left."""

    write: tuple[Made, ...]
    delete: tuple[EndpointSlice, ...]


class _Slice:
    """One slice while it is changed; ``there`` is what is in the cluster, None for a new one."""

    def __init__(self, name: str, port: int, family: str, protocol: str, there: EndpointSlice | None = None) -> None:
        self.name, self.port, self.family, self.protocol, self.there = name, port, family, protocol, there
        present = (there.endpoints or ()) if there is not None else ()
        self.ready = {address: each.ready for each in present for address in (each.addresses or ())[:1]}
        self.before = dict(self.ready)


def changed_slices(
    load_balancer: LoadBalancerKey, backend: Backend, present: Sequence[EndpointSlice], changes: Iterable[TargetChange]
) -> SliceChanges:
    """Return what ``changes`` of the targets of ``backend`` do to its slices; ``present`` are all of them."""
    protocol = "UDP" if backend.protocol == "UDP" else "TCP"
    slices = [_slice(each, protocol) for each in sorted(present, key=lambda each: each.metadata.name)]
    for change in changes:
        family = f"IPv{ip_address(change.key.address).version}"
        holders = [
            each
            for each in slices
            if (each.port, each.family) == (change.key.port, family) and change.key.address in each.ready
        ]
        if change.action is Action.DEREGISTER:
            for each in holders:
                del each.ready[change.key.address]
        elif holders or change.action is not Action.DRAIN:
            place = holders[0] if holders else _with_room(slices, load_balancer, backend, change.key, family, protocol)
            place.ready[change.key.address] = not (change.target.draining or change.action is Action.DRAIN)
    write = [each for each in slices if each.ready and (each.ready != each.before or each.there is None)]
    gone = tuple(each.there for each in slices if not each.ready and each.there is not None)
    return SliceChanges(tuple(_made(load_balancer, backend, each) for each in write), gone)


def observed_targets(slices: Iterable[EndpointSlice]) -> tuple[ObservedTarget, ...]:
    """Return the targets that our slices hold, ordered."""
    targets = [
        ObservedTarget(
            backend_key(each.annotation(ANNOTATION_BACKEND)), TargetKey(address, port), draining=not endpoint.ready
        )
        for each in slices
        for port in [_port(each)]
        for endpoint in each.endpoints or ()
        for address in (endpoint.addresses or ())[:1]
    ]
    return tuple(sorted(set(targets), key=lambda target: (target.listener, target.key)))


def _slice(each: EndpointSlice, protocol: str) -> _Slice:
    return _Slice(each.metadata.name, _port(each), each.address_type, protocol, each)


def _port(each: EndpointSlice) -> int:
    ports = each.ports or ()
    return (ports[0].port or 0) if ports else 0


def _with_room(
    slices: list[_Slice], load_balancer: LoadBalancerKey, backend: Backend, key: TargetKey, family: str, protocol: str
) -> _Slice:
    for each in slices:
        if (each.port, each.family) == (key.port, family) and len(each.ready) < PER_SLICE:
            return each
    taken = {each.name for each in slices}
    head = f"{service_name(load_balancer, backend.name)}-{family.lower()}-{key.port}"
    name = next(name for number in range(len(slices) + 1) if (name := f"{head}-{number}") not in taken)
    slices.append(_Slice(name, key.port, family, protocol))
    return slices[-1]


def _made(load_balancer: LoadBalancerKey, backend: Backend, each: _Slice) -> Made:
    endpoints: list[JSONObject] = [
        {"addresses": [address], "conditions": {"ready": ready, "serving": True, "terminating": not ready}}
        for address, ready in sorted(each.ready.items())
    ]
    parts: JSONObject = {
        "addressType": each.family,
        "endpoints": endpoints,
        "ports": [{"name": PORT_NAME, "port": each.port, "protocol": each.protocol}],
    }
    labels = {
        LABEL_SERVICE_NAME: service_name(load_balancer, backend.name),
        LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY,
    }
    return made(ENDPOINT_SLICES, load_balancer, each.name, parts, labels=labels, backend=backend.name)
