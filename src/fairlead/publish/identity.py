"""The labels of a published object that name its origin.

In: the origin's kind, namespace and name. Out: labels. Pure.
"""

from __future__ import annotations

from fairlead.api.names import (
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_ORIGIN_KIND,
    LABEL_ORIGIN_NAME,
    LABEL_ORIGIN_NAMESPACE,
    LABEL_SLICE_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    SLICE_MANAGED_BY,
)
from fairlead.api.naming import label_value

#: The longest name of an object.
NAME_LIMIT = 253


def origin_labels(*, kind: str, namespace: str, name: str, tenant: str = "") -> dict[str, str]:
    """Return the labels of everything that is published for one origin."""
    labels = {
        LABEL_MANAGED_BY: MANAGED_BY,
        LABEL_ORIGIN_KIND: kind,
        LABEL_ORIGIN_NAMESPACE: namespace,
        LABEL_ORIGIN_NAME: label_value(name),
    }
    return labels | {LABEL_TENANT: label_value(tenant)} if tenant else labels


def slice_labels(origin: dict[str, str], load_balancer: str) -> dict[str, str]:
    """Return the labels of an EndpointSlice of one TCPLoadBalancer, given those of their common origin."""
    return {
        **origin,
        LABEL_SLICE_MANAGED_BY: SLICE_MANAGED_BY,
        LABEL_LOAD_BALANCER: label_value(load_balancer),
    }
