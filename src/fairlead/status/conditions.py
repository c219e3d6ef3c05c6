"""Findings from the conditions and counts of one object: it does not serve, or it needs attention.

    Programmed, Serving False                               it does not serve
    Programmed False since some routes are refused, or      needs attention
    since it is being deleted
    no backend at all, or none that is ready                it does not serve, unless Serving says that it does
    no route attached, where there are routes               is idle, which is no problem
    Accepted, ResolvedRefs, Ready False                     needs attention
    Conflicted, ClockSkewed, Stale, Paused, Drifted,        need attention while they are True
    Guarded, Protected
    Serving Unknown, NotChecked                             is shown, and is no problem: nothing looks at it
    Serving, since some backends have no healthy target     needs attention: requests to these fail
    Serving Unknown                                         is not known yet, unless another says that it does not
    Serving Unknown, ProviderFailed                         is not known yet, though Programmed is False: what was made
                                                            serves on, or not, while its provider cannot be asked
    Unknown of other types                                  is shown, and is no problem: nothing has looked yet

In: conditions of any of our kinds; types that are not known here are no problem. Out: findings, the worst first. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from fairlead.api.conditions import is_taken_over
from fairlead.api.meta import WireCondition
from fairlead.model.condition import ConditionReason
from fairlead.status.rows import Trouble
from fairlead.translate.conditions import says_no_ready

SERVING, PROGRAMMED, ACCEPTED = "Serving", "Programmed", "Accepted"
#: Types that name a problem while they are False, and what that means for traffic.
_GOOD_WHEN_TRUE = {
    PROGRAMMED: Trouble.NOT_SERVING,
    SERVING: Trouble.NOT_SERVING,
    ACCEPTED: Trouble.ATTENTION,
    "ResolvedRefs": Trouble.ATTENTION,
    "Ready": Trouble.ATTENTION,
}
_BAD_WHEN_TRUE = ("ClockSkewed", "Conflicted", "Drifted", "Guarded", "Paused", "Protected", "Stale")
#: Reasons of Serving that have the same cause as references without a ready endpoint.
_WITHOUT_TARGETS = (ConditionReason.NO_TARGETS, ConditionReason.SOME_BACKENDS_UNHEALTHY)
#: Reasons for which Serving stays Unknown: nothing looks at all, or the other, backends.
_UNCHECKED = (ConditionReason.NOT_CHECKED, ConditionReason.SOME_BACKENDS_UNHEALTHY)
_COUNTS = re.compile(r"(\d+)/(\d+)")
_RANK = list(Trouble)


class Finding(NamedTuple):
    """One thing that is not well about one object."""

    trouble: Trouble
    type: str
    reason: str
    message: str


def findings_of(conditions: Iterable[WireCondition] | None) -> list[Finding]:
    """Return what the conditions say that is not well, the worst first, then in the order of the conditions.

    What two conditions say in the same words is said once: a refusal is the reason of Accepted and of Programmed.
    """
    findings = [finding for condition in conditions or () for finding in _finding(condition)]
    by_words: dict[tuple[str, str], Finding] = {}
    for finding in sorted(findings, key=lambda finding: _RANK.index(finding.trouble)):
        by_words.setdefault((finding.reason, finding.message), finding)
    return list(by_words.values())


def findings_of_load_balancer(
    conditions: Sequence[WireCondition] | None, targets: str, routes: int | None = None
) -> list[Finding]:
    """Return the same for what is to serve traffic; ``targets`` is ready/total, with more words or none after it.

    ``routes`` counts those that are attached, None where there are no routes.
    """
    findings = findings_of(conditions)
    by_type = {condition.type: condition for condition in conditions or ()}
    if ACCEPTED in (finding.type for finding in findings) and not _is_true(by_type.get(PROGRAMMED)):
        # Refused, and nothing was accepted before: there is nothing that could serve.
        findings = [
            finding._replace(trouble=Trouble.NOT_SERVING) if finding.type == ACCEPTED else finding
            for finding in findings
        ]
    if routes == 0:
        # Nothing could be sent anywhere, and nothing is missing either: it was not asked to.
        findings.append(Finding(Trouble.IDLE, PROGRAMMED, "NoRoute", "no Ingress or route is attached to it yet"))
        return findings
    serving = by_type.get(SERVING)
    if serving is not None and (serving.status, serving.reason) == ("Unknown", ConditionReason.PROVIDER_FAILED):
        findings = [
            finding._replace(trouble=Trouble.UNCONFIRMED) if finding.type == PROGRAMMED else finding
            for finding in findings
        ]
    without = _without_backend(targets, by_type)
    if any(finding.reason in _WITHOUT_TARGETS for finding in findings):
        # One cause: that references have no endpoint is why it, or one of its backends, has no target.
        findings = [finding for finding in findings if not says_no_ready(finding.reason, finding.message)]
    if any(finding.trouble in (Trouble.NOT_SERVING, Trouble.UNCONFIRMED) for finding in findings):
        return findings
    if without is not None:
        findings.insert(0, without)
    elif serving is not None and serving.status == "Unknown" and serving.reason not in _UNCHECKED:
        findings.insert(0, Finding(Trouble.UNCONFIRMED, SERVING, serving.reason, serving.message))
    return findings


def counted_of(targets: str) -> tuple[int, int] | None:
    """Return how many backends are ready, of how many; None when ``targets`` has no such counts."""
    counts = _COUNTS.match(targets)
    return (int(counts[1]), int(counts[2])) if counts is not None else None


def worst_of(troubles: Iterable[Trouble]) -> Trouble:
    """Return the worst of several; ``NONE`` of none."""
    return min(troubles, key=_RANK.index, default=Trouble.NONE)


def _finding(condition: WireCondition) -> Iterator[Finding]:
    trouble = _GOOD_WHEN_TRUE.get(condition.type) if condition.status == "False" else None
    if condition.status == "True" and condition.type in _BAD_WHEN_TRUE:
        trouble = Trouble.ATTENTION
    if condition.type == PROGRAMMED and condition.reason == ConditionReason.ROUTES_REFUSED:
        trouble = Trouble.ATTENTION  # all other routes are served, unless Serving says otherwise
    if condition.type == PROGRAMMED and condition.reason == ConditionReason.DELETING:
        trouble = Trouble.ATTENTION  # it is not to serve any more
    if condition.reason == ConditionReason.SOME_BACKENDS_UNHEALTHY:
        trouble = Trouble.ATTENTION  # whatever its status: requests to some of its backends fail
    if trouble is not None:
        yield Finding(trouble, condition.type, condition.reason, condition.message)


def _without_backend(targets: str, by_type: dict[str, WireCondition]) -> Finding | None:
    counts = counted_of(targets)
    serving = by_type.get(SERVING)
    if counts is None or counts[0] or not is_taken_over(by_type.get(PROGRAMMED)) or _is_true(serving):
        return None
    guarded = _is_true(by_type.get("Guarded"))
    if guarded or (counts[1] and _is_true(by_type.get("Stale"))):
        # The backends that were ready last are still in use.
        return None
    if not counts[1] and serving is not None and serving.reason == ConditionReason.PENDING:
        return None  # which ones there are is not known
    if not counts[1]:
        return Finding(Trouble.NOT_SERVING, PROGRAMMED, "NoBackend", "it has no backend yet")
    return Finding(Trouble.NOT_SERVING, PROGRAMMED, "NoBackendReady", f"none of its {counts[1]} backends is ready")


def _is_true(condition: WireCondition | None) -> bool:
    return condition is not None and condition.status == "True"
