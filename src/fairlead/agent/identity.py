"""Keys of the agent's work, and names, labels and ownership of the objects at the hub.

    <namespace>.<service>                      the TCPLoadBalancer of a Service
    <namespace>.<service>.<role>.<rest>        an EndpointSlice of it
    fairlead-nodes-<number>                    an EndpointSlice with the nodes of the member
    ingressclass.<class>                       the HTTPLoadBalancer of an IngressClass
    gateway.<namespace>.<name>                 the HTTPLoadBalancer of a Gateway
    ingress.<namespace>.<name>.<hash of host>  the LoadBalancerRoute of one host of an Ingress
    <namespace>.<service>.backend.<slice>      an EndpointSlice of a Service that routes name
    tls.<namespace>.<name>                     the copy of a Secret that listeners name
    fallback.<class>                           the certificate of an IngressClass for names without one

In: the tenant's name, objects of the member and of the hub. Out: metadata, and the way back. Pure. Never: takes an
object for ours by its name or its labels alone. Both must agree, so that an object made by hand with labels copied from
ours is never changed or removed.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import (
    ANNOTATION_ORIGIN,
    GROUP,
    LABEL_BACKEND,
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_NODES,
    LABEL_NODES_IPV6,
    LABEL_ORIGIN_KIND,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    LABEL_ORIGIN_UID,
    LABEL_SLICE_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    SLICE_MANAGED_BY,
    USUAL_CLASS,
    backend_label,
    did_you_mean,
    fit,
    hub_name,
    label_value,
    short_hash,
)
from fairlead.model.keys import IPV4, IPV6, Family
from fairlead.publish.objects import NAME_LIMIT, origin_labels, slice_labels

#: (namespace, name) of a Service in the member: the key of all work.
ServiceKey = tuple[str, str]

_NODES_SLICE_PREFIX: dict[Family, str] = {IPV4: "fairlead-nodes-", IPV6: "fairlead-nodes-ipv6-"}
_NODES_LABEL: dict[Family, str] = {IPV4: LABEL_NODES, IPV6: LABEL_NODES_IPV6}


# --- load balancers of Services --------------------------------------------------------------------------------------


def service_labels(key: ServiceKey, *, tenant: str) -> dict[str, str]:
    """Return the labels of everything that is exported for one Service."""
    return origin_labels(kind=SERVICES.kind, namespace=key[0], name=key[1], tenant=tenant)


def service_slice_labels(key: ServiceKey, *, tenant: str) -> dict[str, str]:
    """Return the labels of an EndpointSlice of one Service."""
    return slice_labels(service_labels(key, tenant=tenant), hub_name(*key))


def nodes_slice_labels(family: Family, *, tenant: str) -> dict[str, str]:
    """Return the labels of an EndpointSlice that holds the member's nodes by their addresses of ``family``."""
    return {
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_TENANT: label_value(tenant),
        LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY,
        _NODES_LABEL[family]: "true",
    }


def slice_name(key: ServiceKey, role: str, rest: str) -> str:
    """Name a slice ``<namespace>.<service>.<role>.<rest>``; the role keeps mirrored and generated slices apart."""
    return fit(f"{hub_name(*key)}.{role}.{rest}", limit=NAME_LIMIT, identity=(*key, role, rest))


def nodes_slice_name(family: Family, index: int) -> str:
    """Name one of the slices that hold the member's nodes."""
    return f"{_NODES_SLICE_PREFIX[family]}{index}"


def nodes_slice_index(hub_object: KubeObject, family: Family, *, tenant: str) -> int | None:
    """Return the index of this nodes slice of ``family``; None if it is not one of ours."""
    number = hub_object.metadata.name.removeprefix(_NODES_SLICE_PREFIX[family])
    ours = _made_by_us(hub_object, tenant) and hub_object.label(_NODES_LABEL[family]) == "true"
    if not ours or not number.isdecimal() or hub_object.metadata.name != nodes_slice_name(family, int(number)):
        return None
    return int(number)


def service_of(hub_object: KubeObject, *, tenant: str) -> ServiceKey | None:
    """Return the Service that a TCPLoadBalancer or slice of ours belongs to; None if it is not ours."""
    key = (hub_object.label(LABEL_ORIGIN_NAMESPACE), hub_object.label(LABEL_ORIGIN_NAME))
    if not all(key) or not _made_by_us(hub_object, tenant) or hub_object.label(LABEL_ORIGIN_KIND) != SERVICES.kind:
        return None
    name = hub_object.metadata.name
    if LABEL_LOAD_BALANCER not in (hub_object.metadata.labels or {}):
        return key if name == hub_name(*key) else None
    # A slice's name may be shortened in the middle; its start still names the Service (127 characters at most).
    return key if name.startswith(f"{hub_name(*key)}.") else None


def _made_by_us(hub_object: KubeObject, tenant: str) -> bool:
    return hub_object.label(LABEL_MANAGED_BY) == MANAGED_BY and hub_object.label(LABEL_TENANT) == label_value(tenant)


#: Kind, namespace (empty for IngressClass) and name of an object of the member: the key of all work.
Key = tuple[str, str, str]


# --- load balancers of HTTP ------------------------------------------------------------------------------------------


def class_load_balancer_name(ingress_class: str) -> str:
    """Name the HTTPLoadBalancer of an IngressClass; a Gateway's has another prefix."""
    return fit(f"ingressclass.{ingress_class}", limit=NAME_LIMIT)


def gateway_load_balancer_name(namespace: str, name: str) -> str:
    """Name the HTTPLoadBalancer of a Gateway.

    A namespace has no dot, so no two Gateways share a name.
    """
    return fit(f"gateway.{namespace}.{name}", limit=NAME_LIMIT, identity=("Gateway", namespace, name))


def route_name(origin: Key, part: str) -> str:
    """Name the LoadBalancerRoute of one part (a host, a parent) of an Ingress or route."""
    kind, namespace, name = origin
    return fit(
        f"{kind.lower()}.{namespace}.{name}.{short_hash(*origin, part)}", limit=NAME_LIMIT, identity=(*origin, part)
    )


def certificate_name(namespace: str, name: str) -> str:
    """Name the copy of a Secret."""
    return fit(f"tls.{namespace}.{name}", limit=NAME_LIMIT, identity=(namespace, name))


def fallback_name(ingress_class: str) -> str:
    """Name the Secret with the fallback certificate of an IngressClass; copies of Secrets have another prefix."""
    return fit(f"fallback.{ingress_class}", limit=NAME_LIMIT, identity=("fallback", ingress_class))


def published_meta(origin: Key, name: str, *, namespace: str, tenant: str) -> ObjectMeta:
    """Return the metadata of an object that is published in ``namespace`` for ``origin``."""
    kind, of_namespace, of_name = origin
    return ObjectMeta(
        name=name,
        namespace=namespace,
        labels=origin_labels(kind=kind, namespace=of_namespace, name=of_name, tenant=tenant),
        annotations={ANNOTATION_ORIGIN: "/".join(filter(None, (tenant, of_namespace, of_name)))},
    )


def backend_slice_meta(
    service: tuple[str, str], rest: str, *, namespace: str, tenant: str, uid: str = ""
) -> ObjectMeta:
    """Return the metadata of a slice of a Service that routes name; ``uid``: the Service's, if known."""
    head = f"{service[0]}.{service[1]}"
    name = fit(f"{head}.backend.{rest}", limit=NAME_LIMIT, identity=(*service, "backend", rest))
    meta = published_meta(("Service", *service), name, namespace=namespace, tenant=tenant)
    labels = {
        **(meta.labels or {}),
        LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY,
        LABEL_BACKEND: backend_label(f"{service[0]}/{service[1]}"),
    }
    if uid:
        labels[LABEL_ORIGIN_UID] = label_value(uid)
    return ObjectMeta(name=name, namespace=namespace, labels=labels)


def is_for(obj: KubeObject, origin: Key, *, tenant: str) -> bool:
    """Return whether an object at the hub was published for ``origin`` by an agent of this tenant."""
    kind, namespace, name = origin
    return (
        obj.label(LABEL_MANAGED_BY) == MANAGED_BY
        and obj.label(LABEL_TENANT) == label_value(tenant)
        and obj.label(LABEL_ORIGIN_KIND) == kind
        and obj.label(LABEL_ORIGIN_NAMESPACE) == namespace
        and obj.label(LABEL_ORIGIN_NAME) == label_value(name)
    )


def key_of(kind: str, obj: KubeObject) -> Key:
    """Return the key of an object of the member."""
    return (kind, obj.metadata.namespace, obj.metadata.name)


def origin_key(obj: KubeObject) -> tuple[str, str, str]:
    """Return the labels by which an object at the hub is found again: kind, namespace, shortened name."""
    return (obj.label(LABEL_ORIGIN_KIND), obj.label(LABEL_ORIGIN_NAMESPACE), obj.label(LABEL_ORIGIN_NAME))


def origin_of(obj: KubeObject, *, tenant: str) -> Key | None:
    """Return the origin of an object at the hub; None if it was not published by this tenant's agent.

    If a label holds a shortened name, the annotation has the whole one.
    """
    kind, namespace, name = origin_key(obj)
    if not kind or not name:
        return None
    whole = obj.annotation(ANNOTATION_ORIGIN).rpartition("/")[2]
    origin = (kind, namespace, whole if whole and label_value(whole) == name else name)
    return origin if is_for(obj, origin, tenant=tenant) else None


def missing_class(kind: str, named: str, classes: Mapping[str, str], controller: str) -> str:
    """Return why a class serves nothing, if the object that names it is probably meant for Fairlead.

    ``classes`` are the existing ones, with their controllers. If none is ours, only the usual name or a similar one
    counts as ours: others may belong to a controller that reads no classes.
    """
    if not named:
        return ""
    if named in classes:
        is_misspelt = classes[named] != controller and classes[named].startswith(f"{GROUP}/")
        text = f"{kind} {named} has the controller {classes[named]}; replace it by one with the controller {controller}"
        return text if is_misspelt else ""
    if controller in classes.values():
        return f"there is no {kind} {named}.{did_you_mean(named, sorted(classes))}"
    if named == USUAL_CLASS or did_you_mean(named, (USUAL_CLASS,)):
        return f"there is no {kind} {named}; create {kind} {USUAL_CLASS} with the controller {controller}"
    return ""
