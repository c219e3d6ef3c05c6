"""Attaches a route to listeners of a parent: which listeners accept it, and at which hostnames.

    what is tested                                   when no listener is left
    -----------------------------------------------  ----------------------------
    sectionName and port of the ``parentRef``        NoMatchingParent
    kind and namespace of the route                  NotAllowedByListeners
    hostnames of both sides                          NoMatchingListenerHostname

One listener that takes the route is enough. Whether the listener itself is served plays no part. In: a ``parentRef``,
what matters of the route, the plan of the parent's Gateway. Out: listeners with hostnames, or the reason. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from fairlead.agent.l7.gateway.judgements import ACCEPTED, bad, good
from fairlead.agent.l7.gateway.plan import Judgement, ListenerPlan, ParentKey, ParentKind
from fairlead.agent.l7.gateway.references import GATEWAY, LISTENER_SET
from fairlead.api.gateway import GATEWAY_GROUP, NamespaceSelector, ParentReference
from fairlead.api.selectors import BadSelector, from_label_selector

_PARENT_KINDS: dict[tuple[str, str], ParentKind] = {GATEWAY: "Gateway", LISTENER_SET: "ListenerSet"}
#: Listeners of these protocols see no hostname.
_WITHOUT_HOSTNAMES = frozenset({"TCP", "UDP"})


class Candidate(NamedTuple):
    """The properties by which a listener accepts a route; ``hostnames`` empty means every host."""

    kind: str
    namespace: str
    hostnames: tuple[str, ...]


class TakenBy(NamedTuple):
    """A listener that takes a route, and the hostnames at which it does; empty: every host."""

    listener: ListenerPlan
    hostnames: tuple[str, ...]


class Acceptance(msgspec.Struct, frozen=True):
    """The listeners that take a route, and condition Accepted."""

    taken_by: tuple[TakenBy, ...]
    judgement: Judgement


def parent_key(reference: ParentReference, namespace: str) -> ParentKey | None:
    """Return what a ``parentRef`` of a route in ``namespace`` names; None for what is never a parent of ours."""
    group = GATEWAY_GROUP if reference.group is None else reference.group
    kind = _PARENT_KINDS.get((group, reference.kind or "Gateway"))
    return None if kind is None else ParentKey(kind, reference.namespace or namespace, reference.name)


def accept(
    candidate: Candidate,
    reference: ParentReference,
    parent: ParentKey,
    listeners: Iterable[ListenerPlan],
    *,
    refusal: str = "",
) -> Acceptance:
    """Return which of the listeners of ``parent`` among ``listeners`` take the route, in their order.

    ``refusal`` says why the parent itself is not accepted: a ListenerSet without a listener here.
    """
    of_parent = [listener for listener in listeners if listener.parent == parent]
    named = [listener for listener in of_parent if _is_named(listener, reference)]
    if refusal and not of_parent:
        return _refused("NoMatchingParent", f"{_of(parent)} is not accepted: {refusal}")
    if not named:
        return _refused("NoMatchingParent", f"{_of(parent)} has no listener{_asked(reference)}")
    allowed = [listener for listener in named if _allows(listener, candidate)]
    if not allowed:
        return _refused("NotAllowedByListeners", _why_not_allowed(candidate, named, parent))
    taken_by = tuple(
        TakenBy(listener, hostnames)
        for listener in allowed
        if (hostnames := hostnames_at(listener, candidate.hostnames)) is not None
    )
    if not taken_by:
        hostnames = ", ".join(sorted({listener.hostname for listener in allowed}))
        return _refused(
            "NoMatchingListenerHostname",
            f"none of the hostnames {', '.join(candidate.hostnames)} is within those of the listeners: {hostnames}",
        )
    return Acceptance(taken_by, good(ACCEPTED))


def hostnames_at(listener: ListenerPlan, hostnames: Sequence[str]) -> tuple[str, ...] | None:
    """Return the hostnames of a route that a listener serves: empty for every host, None when there is none."""
    if listener.protocol in _WITHOUT_HOSTNAMES:
        return ()
    if not hostnames:
        return (listener.hostname,) if listener.hostname else ()
    common = (intersection(hostname, listener.hostname) for hostname in hostnames)
    return tuple(dict.fromkeys(hostname for hostname in common if hostname)) or None


def intersection(first: str, other: str) -> str:
    """Return the hostname that both patterns cover, empty when there is none; an empty ``other`` covers every host.

    The star of ``*.a.com`` stands for one or more labels, so a.com itself is not covered.
    """
    first, other = first.lower(), other.lower()
    if not other or _covers(other, first):
        return first
    return other if _covers(first, other) else ""


def _covers(pattern: str, hostname: str) -> bool:
    if pattern == hostname:
        return True
    return pattern.startswith("*.") and hostname.removeprefix("*").endswith(pattern[1:]) and hostname != pattern[2:]


def _is_named(listener: ListenerPlan, reference: ParentReference) -> bool:
    return reference.section_name in {None, "", listener.name} and reference.port in {None, 0, listener.port}


def _allows(listener: ListenerPlan, candidate: Candidate) -> bool:
    return _takes_kind(listener, candidate.kind) and (
        listener.namespaces is None or candidate.namespace in listener.namespaces
    )


def _takes_kind(listener: ListenerPlan, kind: str) -> bool:
    return any(each.kind == kind and each.group in {None, GATEWAY_GROUP} for each in listener.kinds)


def _why_not_allowed(candidate: Candidate, named: Sequence[ListenerPlan], parent: ParentKey) -> str:
    names = ", ".join(listener.name for listener in named)
    if not any(_takes_kind(listener, candidate.kind) for listener in named):
        return f"the listeners of {_of(parent)} take no {candidate.kind}: {names}"
    return (
        f"the listeners of {_of(parent)} take no {candidate.kind} of namespace {candidate.namespace}: {names}; "
        "allowedRoutes.namespaces says which they take"
    )


def _refused(reason: str, message: str) -> Acceptance:
    return Acceptance((), bad(ACCEPTED, reason, message))


def _of(parent: ParentKey) -> str:
    return f"{parent.kind} {parent.namespace}/{parent.name}"


def _asked(reference: ParentReference) -> str:
    name = f" of name {reference.section_name}" if reference.section_name else ""
    return name + (f" on port {reference.port}" if reference.port else "")


def namespaces_allowed(
    selector: NamespaceSelector | None, *, default: str, own: str, namespaces: Mapping[str, Mapping[str, str]]
) -> frozenset[str] | None:
    """Return the namespaces that ``selector`` allows, None for all; ``own`` is that of the object that has it.

    Raises:
        BadSelector: says what is wrong.
    """
    kind = (selector.from_ if selector is not None else "") or default
    match kind:
        case "All":
            return None
        case "Same":
            return frozenset({own})
        case "None":
            return frozenset()
        case "Selector":
            if selector is None or selector.selector is None:
                raise BadSelector("namespaces.from is Selector, and namespaces.selector is not there")
            chosen = from_label_selector(selector.selector)
            return frozenset(name for name, labels in namespaces.items() if chosen.matches(labels))
        case _:
            raise BadSelector(f"namespaces.from is {kind!r}: use All, Same, Selector or None")
