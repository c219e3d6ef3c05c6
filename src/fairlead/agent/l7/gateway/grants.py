"""Whether ReferenceGrants permit a reference from one namespace to an object of another.

In: the grants of any namespaces. Out: yes or no. Whether the objects are there plays no part. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.api.gateway_policies import GrantFrom, ReferenceGrant


def permits(
    grants: Iterable[ReferenceGrant], origin: GrantFrom, target: tuple[str, str], namespace: str, name: str
) -> bool:
    """Return whether objects like ``origin`` may refer to the ``target`` (group and kind) of this namespace and name.

    Within a namespace every reference is permitted.
    """
    # An empty name in a grant means what an absent one does.
    return origin.namespace == namespace or any(
        origin in (grant.spec.from_ or ())
        and any((to.group, to.kind) == target and to.name in {None, "", name} for to in grant.spec.to or ())
        for grant in grants
        if grant.metadata.namespace == namespace and not grant.deleting
    )
