"""One plan on its way from the worker through the phases of ``execute``: what was planned, and what has become of it.

In: a plan. Out: the same with what was done so far, also when an error ends it half-way, and a ``Report`` of it.
Never: a decision.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fairlead.errors import Retry, Terminal
from fairlead.model.change import Action, Held, Outcome, OutcomeStatus, TargetChange
from fairlead.model.desired import FrontendSpec
from fairlead.model.keys import LoadBalancerKey
from fairlead.sync.concurrency import Slot
from fairlead.sync.plan import Plan
from fairlead.sync.quarantine import Refusal
from fairlead.sync.report import Report
from fairlead.sync.result import Result, failure_of
from fairlead.sync.tracker import LoadBalancerState


class Operation(msgspec.Struct):
    """One run about one load balancer.

    ``parked`` are the rows that are left out because they are known to be refused. ``drained_s`` is the (monotonic)
    second at which the next drain ends, None when nothing drains. ``slot`` is held when the phases begin.
    """

    plan: Plan
    state: LoadBalancerState
    slot: Slot
    parked: tuple[Held, ...] = ()
    drained_s: float | None = None
    #: The rows that succeeded, in the order in which they did.
    done: list[TargetChange] = msgspec.field(default_factory=list[TargetChange])
    #: The load balancer as it is once the first phase is over, or else as it is wanted.
    spec: FrontendSpec | None = None
    #: The rows that are still to be carried out.
    additions: Sequence[TargetChange] = ()
    removals: Sequence[TargetChange] = ()
    #: The first outcome of each phase that was not a success.
    undone: list[Outcome] = msgspec.field(default_factory=list[Outcome])
    #: The frontend could not be changed; raised once what can go on without that is done.
    late: Retry | Terminal | None = None

    @property
    def key(self) -> LoadBalancerKey:
        """Return the load balancer."""
        return self.plan.load_balancer

    @property
    def first_undone(self) -> Outcome | None:
        """Return the first outcome that was not a success, failures before what is under way."""
        failed = (outcome for outcome in self.undone if outcome.status is not OutcomeStatus.RUNNING)
        return next(failed, next(iter(self.undone), None))

    @property
    def frontend_done(self) -> bool:
        """Return whether the row about the load balancer itself was carried out."""
        frontend, state = self.plan.frontend, self.state
        if frontend is None:
            return False
        wanted = frontend.spec if frontend.action is Action.ENSURE else None
        return state.recorded_spec == wanted and not state.ensure_again

    def report(self, result: Result, refused: Refusal | None) -> Report:
        """Return the report of this run; ``refused`` is the parked refusal of the frontend, if any."""
        # Whatever else there is to say: what users ask for is not done, and not for want of trying.
        failure, reason = failure_of(result) if refused is None else (refused.message, refused.reason)
        return Report(
            self.key,
            tuple(self.done),
            self.plan.held,
            self.plan.frontend,
            failure,
            reason,
            self.parked,
            planned=self.plan.changes,
            frontend_done=self.frontend_done,
        )
