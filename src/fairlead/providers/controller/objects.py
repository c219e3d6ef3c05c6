"""The interface and the settings of both forms, Ingress and Gateway, and the objects that both need.

    controllerClass     the IngressClass or GatewayClass of the hub's cluster; required
    annotation.<key>    an annotation for each Ingress or Gateway that the hub makes

Only a class may set these parameters, because they say who serves. A form makes objects of a FrontendSpec, and reads
the status of the load balancer from them. A backend is a Service of type ClusterIP without a selector, which is never
exposed by itself. Its targets are EndpointSlices of one port and one family with at most 100 endpoints: a change among
thousands of targets is a small write. In: load balancers, backends, changes of targets. Out: objects as JSON, slices to
write and to delete, and targets that are read back. Pure; a wrong parameter is a ``BadConfiguration``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from hashlib import blake2b
from ipaddress import ip_address
from typing import Protocol

import msgspec
from msgspec.structs import replace

from fairlead.api.kubernetes import ENDPOINT_SLICES, SERVICES, EndpointSlice
from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.api.names import (
    ANNOTATION_APPLIED,
    ANNOTATION_BACKEND,
    ANNOTATION_HEALTH_CHECK,
    ANNOTATION_OUTLIER_DETECTION,
    ANNOTATION_ROUTE_FIGURES,
    LABEL_MADE_FOR,
    LABEL_MANAGED_BY,
    LABEL_SERVICE_NAME,
    LABEL_SLICE_MANAGED_BY,
    MANAGED_BY,
    SLICE_MANAGED_BY,
    label_value,
    short_hash,
)
from fairlead.errors import BadConfiguration
from fairlead.model.change import Action, TargetChange
from fairlead.model.desired import FrontendSpec
from fairlead.model.http import Backend, L7Config
from fairlead.model.keys import LoadBalancerKey, TargetKey, backend_key
from fairlead.model.keys import Protocol as TransportProtocol
from fairlead.model.observed import ObservedTarget, RefusedPart

_ENCODER = msgspec.json.Encoder(order="deterministic")
_NOT_IN_LABELS = re.compile(r"[^a-z0-9]+")
_HEAD = 40
_WHOLE_KEY = 3


class AppliedObject(msgspec.Struct, frozen=True):
    """One object to be applied; ``route`` is the route of the load balancer that it is for, if it is for one."""

    resource: AnyResource
    body: JSONObject
    route: str = ""

    @property
    def name(self) -> str:
        """Return its name; the namespace is that of the load balancer."""
        return str(self.body["metadata"]["name"])

    @property
    def digest(self) -> str:
        """Return the digest that the object carries."""
        return str(self.body["metadata"]["annotations"][ANNOTATION_APPLIED])


class Rendered(msgspec.Struct, frozen=True):
    """The objects that another controller is to serve: its objects, and the parts that those objects cannot express."""

    objects: tuple[AppliedObject, ...]
    refused: tuple[RefusedPart, ...] = ()


def dns_name(text: str, *identity: str) -> str:
    """Return a DNS label of at most 63 characters, readable by ``text`` and unique by ``identity``."""
    readable = _NOT_IN_LABELS.sub("-", text.lower()).strip("-")[:_HEAD].strip("-")
    head = readable if readable[:1].isalpha() else f"b-{readable}"
    return f"{head.rstrip('-')}-{short_hash(*identity)}"


def service_name(load_balancer: LoadBalancerKey, backend: str) -> str:
    """Name the Service of one backend."""
    return dns_name(backend, *load_balancer, backend)


def made(
    resource: AnyResource,
    load_balancer: LoadBalancerKey,
    name: str,
    parts: JSONObject,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    backend: str = "",
    route: str = "",
) -> AppliedObject:
    """Return an object with our marks; ``parts`` are the other fields, ``backend`` is the owner, if any."""
    own = {LABEL_MADE_FOR: "/".join(load_balancer)} | ({ANNOTATION_BACKEND: backend} if backend else {})
    metadata: JSONObject = {
        "name": name,
        "namespace": load_balancer.namespace,
        "labels": {**(labels or {}), LABEL_MANAGED_BY: MANAGED_BY, LABEL_MADE_FOR: label_value(load_balancer.name)},
        "annotations": {**(annotations or {}), **own},
    }
    body: JSONObject = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **parts}
    return AppliedObject(resource, _with_digest(body), route)


def with_spec(obj: AppliedObject, spec: JSONObject) -> AppliedObject:
    """Return the same object with another spec."""
    return replace(obj, body=_with_digest({**obj.body, "spec": spec}))


def _with_digest(body: JSONObject) -> JSONObject:
    annotations = {name: text for name, text in body["metadata"]["annotations"].items() if name != ANNOTATION_APPLIED}
    body = {**body, "metadata": {**body["metadata"], "annotations": annotations}}
    annotations[ANNOTATION_APPLIED] = blake2b(_ENCODER.encode(body), digest_size=10).hexdigest()
    return body


def made_for(obj: KubeObject) -> LoadBalancerKey | None:
    """Return the load balancer that an object was made for; None if the object is not ours."""
    parts = obj.annotation(LABEL_MADE_FOR).split("/")
    ours = obj.label(LABEL_MANAGED_BY) == MANAGED_BY and len(parts) == _WHOLE_KEY
    return LoadBalancerKey(*parts) if ours else None


def selector(load_balancer: LoadBalancerKey) -> str:
    """Return the label selector of all that was made for a load balancer, and maybe for another of a similar name."""
    return f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_MADE_FOR}={label_value(load_balancer.name)}"


#: The name of the one port of each Service, by which its slices are matched.
PORT_NAME = "backend"
PER_SLICE = 100


class SliceChanges(msgspec.Struct, frozen=True):
    """The slices to write, and those without an endpoint left."""

    write: tuple[AppliedObject, ...]
    delete: tuple[EndpointSlice, ...]


class _Slice:
    """One slice while it is changed; ``there`` is what is in the cluster, None for a new one."""

    def __init__(self, name: str, port: int, family: str, protocol: str, there: EndpointSlice | None = None) -> None:
        self.name, self.port, self.family, self.protocol, self.there = name, port, family, protocol, there
        present = (there.endpoints or ()) if there is not None else ()
        self.ready = {address: endpoint.ready for endpoint in present for address in (endpoint.addresses or ())[:1]}
        self.before = dict(self.ready)


def changed_slices(
    load_balancer: LoadBalancerKey, backend: Backend, present: Sequence[EndpointSlice], changes: Iterable[TargetChange]
) -> SliceChanges:
    """Return the slices of ``backend`` that ``changes`` of targets write or delete; ``present`` are all slices."""
    protocol = "UDP" if backend.protocol == "UDP" else "TCP"
    slices = [_slice(slice_, protocol) for slice_ in sorted(present, key=lambda slice_: slice_.metadata.name)]
    for change in changes:
        family = f"IPv{ip_address(change.key.address).version}"
        holders = [
            slice_
            for slice_ in slices
            if (slice_.port, slice_.family) == (change.key.port, family) and change.key.address in slice_.ready
        ]
        if change.action is Action.DEREGISTER:
            for holder in holders:
                del holder.ready[change.key.address]
        elif holders or change.action is not Action.DRAIN:
            place = holders[0] if holders else _with_room(slices, load_balancer, backend, change.key, family, protocol)
            place.ready[change.key.address] = not (change.target.draining or change.action is Action.DRAIN)
    write = [slice_ for slice_ in slices if slice_.ready and (slice_.ready != slice_.before or slice_.there is None)]
    gone = tuple(slice_.there for slice_ in slices if not slice_.ready and slice_.there is not None)
    return SliceChanges(tuple(_made(load_balancer, backend, slice_) for slice_ in write), gone)


def observed_targets(slices: Iterable[EndpointSlice]) -> tuple[ObservedTarget, ...]:
    """Return the targets that our slices hold, ordered."""
    targets = [
        ObservedTarget(
            backend_key(slice_.annotation(ANNOTATION_BACKEND)), TargetKey(address, port), draining=not endpoint.ready
        )
        for slice_ in slices
        for port in [_port(slice_)]
        for endpoint in slice_.endpoints or ()
        for address in (endpoint.addresses or ())[:1]
    ]
    return tuple(sorted(set(targets), key=lambda target: (target.listener, target.key)))


def _slice(slice_: EndpointSlice, protocol: str) -> _Slice:
    return _Slice(slice_.metadata.name, _port(slice_), slice_.address_type, protocol, slice_)


def _port(slice_: EndpointSlice) -> int:
    ports = slice_.ports or ()
    return (ports[0].port or 0) if ports else 0


def _with_room(
    slices: list[_Slice], load_balancer: LoadBalancerKey, backend: Backend, key: TargetKey, family: str, protocol: str
) -> _Slice:
    for slice_ in slices:
        if (slice_.port, slice_.family) == (key.port, family) and len(slice_.ready) < PER_SLICE:
            return slice_
    taken = {slice_.name for slice_ in slices}
    head = f"{service_name(load_balancer, backend.name)}-{family.lower()}-{key.port}"
    name = next(name for number in range(len(slices) + 1) if (name := f"{head}-{number}") not in taken)
    slices.append(_Slice(name, key.port, family, protocol))
    return slices[-1]


def _made(load_balancer: LoadBalancerKey, backend: Backend, slice_: _Slice) -> AppliedObject:
    endpoints: list[JSONObject] = [
        {"addresses": [address], "conditions": {"ready": ready, "serving": True, "terminating": not ready}}
        for address, ready in sorted(slice_.ready.items())
    ]
    parts: JSONObject = {
        "addressType": slice_.family,
        "endpoints": endpoints,
        "ports": [{"name": PORT_NAME, "port": slice_.port, "protocol": slice_.protocol}],
    }
    labels = {LABEL_SERVICE_NAME: service_name(load_balancer, backend.name), LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY}
    return made(ENDPOINT_SLICES, load_balancer, slice_.name, parts, labels=labels, backend=backend.name)


#: The port of each Service, whatever the port of its endpoints.
SERVICE_PORT = 80
#: Marks a backend as HTTP/2 without TLS for other controllers.
_H2C = "kubernetes.io/h2c"


def service(load_balancer: LoadBalancerKey, backend: Backend) -> AppliedObject:
    """Return the Service of one backend."""
    port: JSONObject = {
        "name": PORT_NAME,
        "port": SERVICE_PORT,
        "protocol": "UDP" if backend.protocol == "UDP" else "TCP",
    }
    if backend.protocol == "HTTP2" and backend.tls is None:
        port["appProtocol"] = _H2C
    spec: JSONObject = {"type": "ClusterIP", "ports": [port]}
    return made(
        SERVICES, load_balancer, service_name(load_balancer, backend.name), {"spec": spec}, backend=backend.name
    )


_LONGEST_NAME = 253


class FormAnswer(msgspec.Struct, frozen=True):
    """The controller's answer for one object: its addresses, and why it does not serve yet (empty when it does)."""

    addresses: tuple[str, ...] = ()
    waiting: str = ""


class ControllerForm(Protocol):
    """A form. ``answering`` is the kind whose status has the address; ``others`` are created with it.

    ``reporting`` are the kinds whose status says whether they serve.
    """

    name: str
    protocols: frozenset[TransportProtocol]
    answering: AnyResource
    reporting: tuple[AnyResource, ...]
    others: tuple[AnyResource, ...]

    def render(self, spec: FrontendSpec, settings: ControllerSettings) -> Rendered:
        """Return the objects that express ``spec``, without the Services of its backends."""
        ...

    def rules_of(self, obj: AppliedObject) -> int:
        """Return how many rules an object has that can be closed one by one."""
        ...

    def close(self, obj: AppliedObject, rules: Collection[int]) -> AppliedObject:
        """Return the object with these rules closed: a request that matches one gets an error, and no other backend."""
        ...

    def answer(self, obj: KubeObject) -> FormAnswer:
        """Return the answer in the status of an object of a kind in ``reporting``."""
        ...


#: The Service of a closed rule. It does not exist, so that the controller answers requests with an error.
UNRESOLVED = "fairlead-unresolved-backend"


def unrendered_parts(config: L7Config) -> list[RefusedPart]:
    """Return rejections for the features that no form supports: fixed answers, maintenance, figures, health checks."""
    reason = "another controller cannot serve fixed answers; prove the name with DNS-01"
    refused = [
        RefusedPart("answer", f"{answer.hostname}{answer.path}"[:_LONGEST_NAME], reason) for answer in config.answers
    ]
    refused += [
        RefusedPart("maintenance", entry.host or "*", "another controller cannot answer in place of routes")
        for entry in config.maintenance
    ]
    if config.error_pages:
        reason = "another controller cannot serve error pages"
        refused.append(RefusedPart("error pages", ", ".join(sorted(config.error_pages)), reason))
    if config.route_figures:
        reason = "another controller does not report the requests of each route; remove the annotation"
        refused.append(RefusedPart("annotation", ANNOTATION_ROUTE_FIGURES, reason))
    reason = "another controller checks its backends itself; remove the annotation from Service"
    for backend in config.backends:
        for annotation, settings in (
            (ANNOTATION_HEALTH_CHECK, backend.health_check),
            (ANNOTATION_OUTLIER_DETECTION, backend.outlier_detection),
        ):
            if settings is not None:
                refused.append(RefusedPart("annotation", annotation, f"{reason} {backend.service}"))
    return list(dict.fromkeys(refused))


CONTROLLER_CLASS = "controllerClass"
ANNOTATION = "annotation."


class ControllerSettings(msgspec.Struct, frozen=True):
    """The class of the controller, and the annotations that objects get."""

    controller_class: str
    annotations: Mapping[str, str] = {}


def settings_from_spec(spec: FrontendSpec, *, provider: str) -> ControllerSettings:
    """Return the settings of one load balancer.

    Raises:
        BadConfiguration: controllerClass is missing, or a parameter has no effect.
    """
    if problem := class_problem(spec.parameters, provider=provider):
        raise BadConfiguration(f"{spec.key}: {problem}")
    if spec.l7 is None:
        raise BadConfiguration(
            f"{spec.key}: a class with provider {provider} serves Ingresses and Gateways only; use another "
            "LoadBalancerClass for Services"
        )
    annotations = {
        name.removeprefix(ANNOTATION): value for name, value in spec.parameters.items() if name.startswith(ANNOTATION)
    }
    return ControllerSettings(spec.parameters[CONTROLLER_CLASS], annotations)


def class_problem(parameters: Mapping[str, str], *, provider: str) -> str:
    """Return the error in the parameters of a class; empty if they are valid."""
    unknown = sorted(name for name in parameters if name != CONTROLLER_CLASS and not name.startswith(ANNOTATION))
    if unknown:
        return (
            f"parameters.{unknown[0][:60]} of its class is unknown to provider {provider}; valid are "
            f"{CONTROLLER_CLASS} and {ANNOTATION}<key>"
        )
    if not parameters.get(CONTROLLER_CLASS, ""):
        return (
            f"parameters.{CONTROLLER_CLASS} of its class is missing: name the class of the controller in "
            "the hub's cluster that is to serve it"
        )
    return ""
