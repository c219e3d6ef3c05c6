"""Names and ownership of the objects that are published at the hub for L7.

    ingressclass.<class>                       the HTTPLoadBalancer of an IngressClass
    gateway.<namespace>.<name>                 the HTTPLoadBalancer of a Gateway
    ingress.<namespace>.<name>.<hash of host>  the LoadBalancerRoute of one host of an Ingress
    <namespace>.<service>.backend.<slice>      an EndpointSlice of a Service that routes name
    tls.<namespace>.<name>                     the copy of a Secret that listeners name
    fallback.<class>                           the certificate of an IngressClass for names that have none

In: names in the member. Out: metadata, and the way back. Pure. As for Services, name and labels must both agree.
"""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.meta import KubeObject, ObjectMeta
from fairlead.api.names import (
    ANNOTATION_ORIGIN,
    LABEL_BACKEND,
    LABEL_MANAGED_BY,
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
    label_value,
    short_hash,
)
from fairlead.publish.objects import NAME_LIMIT, origin_labels

#: Kind, namespace (empty for IngressClass) and name of an object of the member: the key of all work.
Origin = tuple[str, str, str]


def class_load_balancer_name(ingress_class: str) -> str:
    """Name the HTTPLoadBalancer of an IngressClass; a Gateway's has another prefix."""
    return fit(f"ingressclass.{ingress_class}", limit=NAME_LIMIT)


def gateway_load_balancer_name(namespace: str, name: str) -> str:
    """Name the HTTPLoadBalancer of a Gateway.

    A namespace has no dot, so no two Gateways share a name.
    """
    return fit(f"gateway.{namespace}.{name}", limit=NAME_LIMIT, identity=("Gateway", namespace, name))


def route_name(origin: Origin, part: str) -> str:
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


def published_meta(origin: Origin, name: str, *, namespace: str, tenant: str) -> ObjectMeta:
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
    """Return the metadata of a slice of a Service that routes name; ``uid``: the Service's, when it is known."""
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


def is_for(obj: KubeObject, origin: Origin, *, tenant: str) -> bool:
    """Return whether an object at the hub was published for ``origin`` by an agent of this tenant."""
    kind, namespace, name = origin
    return (
        obj.label(LABEL_MANAGED_BY) == MANAGED_BY
        and obj.label(LABEL_TENANT) == label_value(tenant)
        and obj.label(LABEL_ORIGIN_KIND) == kind
        and obj.label(LABEL_ORIGIN_NAMESPACE) == namespace
        and obj.label(LABEL_ORIGIN_NAME) == label_value(name)
    )


def key_of(kind: str, obj: KubeObject) -> Origin:
    """Return the key of an object of the member."""
    return (kind, obj.metadata.namespace, obj.metadata.name)


def origin_key(obj: KubeObject) -> tuple[str, str, str]:
    """Return the labels by which an object at the hub is found again: kind, namespace, shortened name."""
    return (obj.label(LABEL_ORIGIN_KIND), obj.label(LABEL_ORIGIN_NAMESPACE), obj.label(LABEL_ORIGIN_NAME))


def origin_of(obj: KubeObject, *, tenant: str) -> Origin | None:
    """Return what an object at the hub was published for; None when it was not published by this tenant's agent.

    A label may hold a shortened name; then the annotation has the whole one.
    """
    kind, namespace, name = origin_key(obj)
    if not kind or not name:
        return None
    whole = obj.annotation(ANNOTATION_ORIGIN).rpartition("/")[2]
    origin = (kind, namespace, whole if whole and label_value(whole) == name else name)
    return origin if is_for(obj, origin, tenant=tenant) else None


def missing_class(kind: str, named: str, classes: Mapping[str, bool], controller: str) -> str:
    """Return that a class does not exist, when the object that names it is likely to be meant for Fairlead.

    ``classes`` says of each class that exists whether it is ours. Where none is, only the usual name, or one close to
    it, is ours: others may be of a controller that reads no classes.
    """
    if not named or named in classes:
        return ""
    if any(classes.values()):
        return f"there is no {kind} {named}.{did_you_mean(named, sorted(classes))}"
    if named == USUAL_CLASS or did_you_mean(named, (USUAL_CLASS,)):
        return f"there is no {kind} {named}; create {kind} {USUAL_CLASS} with the controller {controller}"
    return ""
