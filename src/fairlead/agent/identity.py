"""Ownership of objects at the hub: the labels that name their Service, and the Service that they name.

In: the tenant's name; the metadata of a hub object. Out: the labels that say whose it is, and the way back.
Never takes an object for ours because of its name alone, or because of its labels alone: both must agree, so that
an object made by hand with labels copied from ours is never changed or removed.
"""

from __future__ import annotations

from fairlead.api.kubernetes import SERVICES
from fairlead.api.meta import KubeObject
from fairlead.api.names import (
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_NODES,
    LABEL_NODES_IPV6,
    LABEL_ORIGIN_KIND,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    LABEL_SLICE_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    SLICE_MANAGED_BY,
    fit,
    hub_name,
    label_value,
)
from fairlead.model.keys import IPV4, IPV6, Family
from fairlead.publish.objects import NAME_LIMIT, origin_labels, slice_labels

#: (namespace, name) of a Service in the member: the key of all work.
ServiceKey = tuple[str, str]

_NODES_SLICE_PREFIX: dict[Family, str] = {IPV4: "fairlead-nodes-", IPV6: "fairlead-nodes-ipv6-"}
_NODES_LABEL: dict[Family, str] = {IPV4: LABEL_NODES, IPV6: LABEL_NODES_IPV6}


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
    """Name a slice ``<namespace>.<service>.<role>.<rest>``; the role keeps mirrored and made-up ones apart."""
    return fit(f"{hub_name(*key)}.{role}.{rest}", limit=NAME_LIMIT, identity=(*key, role, rest))


def nodes_slice_name(family: Family, index: int) -> str:
    """Name one of the slices that hold the member's nodes."""
    return f"{_NODES_SLICE_PREFIX[family]}{index}"


def nodes_slice_index(hub_object: KubeObject, family: Family, *, tenant: str) -> int | None:
    """Return which of our nodes slices of ``family`` this is; None when it is not one."""
    number = hub_object.metadata.name.removeprefix(_NODES_SLICE_PREFIX[family])
    ours = _made_by_us(hub_object, tenant) and hub_object.label(_NODES_LABEL[family]) == "true"
    if not ours or not number.isdecimal() or hub_object.metadata.name != nodes_slice_name(family, int(number)):
        return None
    return int(number)


def origin_of(hub_object: KubeObject, *, tenant: str) -> ServiceKey | None:
    """Return the Service that a TCPLoadBalancer or slice of ours is for; None when it is not ours."""
    key = (hub_object.label(LABEL_ORIGIN_NAMESPACE), hub_object.label(LABEL_ORIGIN_NAME))
    if not all(key) or not _made_by_us(hub_object, tenant) or hub_object.label(LABEL_ORIGIN_KIND) != SERVICES.kind:
        return None
    name = hub_object.metadata.name
    if LABEL_LOAD_BALANCER not in (hub_object.metadata.labels or {}):
        return key if name == hub_name(*key) else None
    # A slice's name may have been cut in the middle to fit; its head still names the Service (127 characters at most).
    return key if name.startswith(f"{hub_name(*key)}.") else None


def _made_by_us(hub_object: KubeObject, tenant: str) -> bool:
    return hub_object.label(LABEL_MANAGED_BY) == MANAGED_BY and hub_object.label(LABEL_TENANT) == label_value(tenant)
