"""Whether a server has been restored to an older state than the one that was read from it.

A restore of etcd as it is takes versions back, and a watch from a version that is yet to come is silent for as long as
the server takes to reach it. The one that is documented for Kubernetes (``--bump-revision 1000000000``) takes them far
ahead, so that every such watch is answered with 410.

In: versions. Out: whether the state was restored between them; versions that are no numbers are not compared.
Source: https://kubernetes.io/docs/reference/using-api/api-concepts/#resource-versions
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from fairlead.api.meta import KubeObject, version_number
from fairlead.errors import FairleadError

T = TypeVar("T", bound=KubeObject)

#: No cluster writes that often between two looks at it: 5,000 times a second for a day.
_LEAP = 400_000_000


class StateRestored(FairleadError):
    """The server was restored to an older state, so that all derived state has to be computed again."""


def was_restored(before: str, now: str) -> bool:
    """Return whether a server at version ``now`` is one that was restored since it was at ``before``."""
    old, new = version_number(before), version_number(now)
    return bool(old and new) and (new < old or new - old > _LEAP)


def newest_of(objects: Iterable[T]) -> T | None:
    """Return the object that was changed last; None when there is none."""
    return max(objects, key=lambda obj: version_number(obj.metadata.resource_version), default=None)
