"""The report of one run of the worker on one load balancer: for its status, log and history alike.

In: the plan as it was carried out, and what came of it. Out: one value, and one sentence. Never: a decision.
"""

from __future__ import annotations

import msgspec

from fairlead.model.change import Action, FrontendChange, Held, TargetChange
from fairlead.model.keys import LoadBalancerKey


class Report(msgspec.Struct, frozen=True):
    """``planned`` are the rows that were to be carried out, and ``done`` those of them that were.

    ``frontend`` is the row about the load balancer itself, and ``frontend_done`` says whether it was carried out.
    """

    load_balancer: LoadBalancerKey
    done: tuple[TargetChange, ...] = ()
    held: tuple[Held, ...] = ()
    frontend: FrontendChange | None = None
    failure: str = ""
    failure_reason: str = ""
    quarantined: tuple[Held, ...] = ()
    #: The provider whose worker it was; empty when there is only one.
    provider: str = ""
    planned: tuple[TargetChange, ...] = ()
    frontend_done: bool = False

    @property
    def sentence(self) -> str:
        """Say in one sentence what happened."""
        parts: list[str] = []
        if self.frontend is not None:
            parts.append(f"{self.frontend.action} load balancer ({self.frontend.reason})")
        counts: dict[tuple[Action, str], int] = {}
        for change in self.done:
            counts[change.action, change.reason] = counts.get((change.action, change.reason), 0) + 1
        parts += [f"{action} {count} ({reason})" for (action, reason), count in counts.items()]
        if self.held:
            parts.append(f"hold {len(self.held)} ({self.held[0].reason})")
        if self.quarantined:
            parts.append(f"quarantine {len(self.quarantined)} ({self.quarantined[0].message})")
        if self.failure:
            parts.append(f"failed: {self.failure}")
        return ", ".join(parts) or "nothing to do"
