"""The filter of a status: by name, namespace, labels, or only what is not well.

In: the options of ``fairlead status``. Out: the same ``FleetStatus`` with fewer rows, and the trouble of those alone.
The hub is part of every answer: when none leads, what is shown may be old.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from fairlead.cli.selection import in_namespace, matcher
from fairlead.errors import NotFound
from fairlead.status.conditions import worst_of
from fairlead.status.object_ref import IN_MEMBERS, KINDS, SERVICE, SHARING
from fairlead.status.rows import FleetStatus, LoadBalancerRow, Problem, RegionRow, Trouble

_WELL = (Trouble.NONE, Trouble.IDLE)
#: What a name can mean; of problems those of objects in a member.
_Row = LoadBalancerRow | RegionRow | Problem


class Filter(msgspec.Struct, frozen=True):
    """``names``: a Service or a load balancer, with or without its kind, namespace and member; empty: all."""

    names: Sequence[str] = ()
    namespace: str = ""
    selector: str = ""

    @property
    def is_open(self) -> bool:
        """Return whether everything is asked for."""
        return not (self.names or self.namespace or self.selector)


def filtered(fleet: FleetStatus, asked: Filter) -> FleetStatus:
    """Return what is asked for; ``NotFound`` names what there is not, ``BadConfiguration`` a bad selector."""
    if asked.is_open:
        return fleet
    matches = matcher(asked.selector)
    load_balancers = [
        row for row in fleet.load_balancers if matches(row.labels) and in_namespace(_places(row), asked.namespace)
    ]
    regions = [row for row in fleet.regions if matches(row.labels) and in_namespace(_places(row), asked.namespace)]
    # What an agent refuses has no load balancer here, and no labels.
    refused = [
        each
        for each in fleet.troubles
        if each.member and not asked.selector and in_namespace(_places(each), asked.namespace)
    ]
    if asked.names:
        _check_names(asked.names, [*load_balancers, *regions, *refused])
        load_balancers = [row for row in load_balancers if _is_named(row, asked.names)]
        regions = [row for row in regions if _is_named(row, asked.names)]
        refused = [each for each in refused if _is_named(each, asked.names)]
    elif not (load_balancers or regions or refused):
        raise NotFound(f"Nothing here {_said(asked)}; fairlead status -o name lists all that there is")
    shown = {(row.kind, row.namespace, row.name) for row in load_balancers}
    shown |= {("PoolService", row.namespace, row.service) for row in regions}
    troubles = [
        each
        for each in fleet.troubles
        if each.kind == "Hub" or each in refused or (each.kind, each.namespace, each.name) in shown
    ]
    return _with(fleet, troubles, load_balancers=load_balancers, regions=regions, members=[], proxies=[])


def only_problems(fleet: FleetStatus) -> FleetStatus:
    """Return the rows that are not well."""
    return msgspec.structs.replace(
        fleet,
        members=[row for row in fleet.members if row.state != "Engaged"],
        load_balancers=[row for row in fleet.load_balancers if row.state not in _WELL],
        regions=[row for row in fleet.regions if row.state not in _WELL],
        proxies=[row for row in fleet.proxies if row.state != "SYNCED"],
    )


def _with(fleet: FleetStatus, troubles: list[Problem], **rows: object) -> FleetStatus:
    return msgspec.structs.replace(
        fleet,
        healthy=not troubles,
        state=worst_of(problem.trouble for problem in troubles),
        problems=[problem.sentence for problem in troubles],
        troubles=troubles,
        **rows,
    )


def _places(row: _Row) -> list[str]:
    """Return all that a row may be called, without kinds: as long as possible first."""
    if isinstance(row, RegionRow):
        return [f"{row.namespace}/{row.service}"]
    if isinstance(row, Problem):
        return [f"{row.member}/{row.namespace}/{row.name}"]
    return [f"{row.namespace}/{row.name}", *([row.origin] if row.origin else [])]


def _said(asked: Filter) -> str:
    """Return what a filter by namespace and labels asks for, as the end of a sentence."""
    parts = [f"is in namespace {asked.namespace!r}"] if asked.namespace else []
    parts += [f"has the labels {asked.selector!r} at the hub"] if asked.selector else []
    return " and ".join(parts)


def _is_named(row: _Row, names: Iterable[str]) -> bool:
    return any(_means(name, row) for name in names)


def _means(name: str, row: _Row) -> bool:
    """Return whether a row is meant by ``[KIND/][[MEMBER/]NAMESPACE/]NAME``."""
    head, slash, rest = name.partition("/")
    kind = (KINDS.get(head.lower()) or SHARING.get(head.lower())) if slash else None
    wanted = f"/{rest if kind else name}"
    if kind in IN_MEMBERS:
        if isinstance(row, RegionRow | Problem):
            own = row.kind if isinstance(row, Problem) else SERVICE
            return kind == own and any(f"/{place}".endswith(wanted) for place in _places(row))
        # What an IngressClass became is for no Service, and for no Ingress alone.
        return row.origin_kind == kind and f"/{row.origin}".endswith(wanted)
    if kind and (isinstance(row, RegionRow | Problem) or row.kind != kind):
        return False
    return any(f"/{place}".endswith(wanted) for place in _places(row))


def _check_names(names: Iterable[str], rows: Sequence[_Row]) -> None:
    for name in names:
        if not any(_means(name, row) for row in rows):
            raise NotFound(f"Nothing here is called {name!r}; fairlead status -o name lists all that there is")
