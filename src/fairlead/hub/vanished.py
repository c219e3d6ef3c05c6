"""Retries when an object is not there at the write of its status: it was deleted a moment ago.

In: a reconcile of keys. Out: the same, whose ``NotFound`` is tried again: by then the watch shows the deletion, and
there is nothing left to do. Never: hides a kind that is missing; that goes on, and is logged after some tries.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from fairlead.errors import NotFound, Retry
from fairlead.model.keys import LoadBalancerKey

Reconcile = Callable[[LoadBalancerKey], Awaitable[float | None]]


def retry_vanished(reconcile: Reconcile) -> Reconcile:
    """Return ``reconcile`` with ``Retry`` in the place of ``NotFound``."""

    async def retrying(key: LoadBalancerKey) -> float | None:
        try:
            return await reconcile(key)
        except NotFound as error:
            raise Retry(error.sentence, detail=error.detail) from error

    return retrying
