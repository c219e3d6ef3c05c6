"""Permission to write, asked right before each write: an authority may answer after the term has ended.

In: whether it leads at this very moment. Out: nothing, or ``Retry``.
"""

from __future__ import annotations

from collections.abc import Callable

from fairlead.errors import Retry


def check_leads(leading: Callable[[], bool], action: str) -> None:
    """Return when this replica leads.

    Raises:
        Retry: it does not; ``action``, such as "Secret a/b", is not written, and the replica that leads decides anew.
    """
    if not leading():
        raise Retry(f"this replica does not lead any more; {action} is not written", reason="NotLeading")
