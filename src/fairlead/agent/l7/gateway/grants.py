"""Whether ReferenceGrants permit a reference from one namespace to an object of another.

In: the grants of any namespaces. Out: yes or no. Whether the objects are there plays no part. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.gateway_policies import GrantFrom, GrantTo, ReferenceGrant


def permits(
    grants: Iterable[ReferenceGrant],
    *,
    group: str,
    kind: str,
    namespace: str,
    to_group: str,
    to_kind: str,
    to_namespace: str,
    to_name: str,
) -> bool:
    """Return whether an object of ``group``, ``kind`` and ``namespace`` may refer to the other one.

    Within a namespace every reference is permitted.
    """
    if namespace == to_namespace:
        return True
    origin = GrantFrom(group, kind, namespace)
    return any(
        origin in (grant.spec.from_ or ())
        and any(_covers(to, to_group, to_kind, to_name) for to in grant.spec.to or ())
        for grant in grants
        if grant.metadata.namespace == to_namespace and not grant.deleting
    )


def _covers(to: GrantTo, group: str, kind: str, name: str) -> bool:
    # An empty name means what an absent one does.
    return (to.group, to.kind) == (group, kind) and to.name in {None, "", name}
