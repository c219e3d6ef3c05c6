"""The writes that are due at the hub, in order and with reasons.

    1. apply the TCPLoadBalancer     so that new slices are never without one
    2. apply slices                  add before remove
    3. delete slices                 of an earlier target type, or that are no longer desired
    (a load balancer that goes: its TCPLoadBalancer first, so that the hub sees a deletion and not lost backends)

In: what should be published and what is present, both in canonical form. Out: writes, each with a reason; none when
nothing differs. Pure.
Never: touches an object that is not ours, or applies to one that is being deleted (it is made anew once it is gone).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from fairlead.api.kubernetes import EndpointSlice
from fairlead.api.meta import KubeObject
from fairlead.api.tcploadbalancer import TCPLoadBalancer
from fairlead.publish.compare import load_balancer_difference, slice_difference
from fairlead.publish.publication import Publication

#: Says whether a present object was published for the origin that is planned for.
IsOurs = Callable[[KubeObject], bool]


class Present(msgspec.Struct, frozen=True):
    """One origin at the hub: the object of the TCPLoadBalancer's name, and all slices that may be its own."""

    load_balancer: TCPLoadBalancer | None
    slices: tuple[EndpointSlice, ...] = ()


class HubWrite(msgspec.Struct, frozen=True):
    """One write. ``obj`` is what to apply; for a delete it is the object that is present (its uid is checked)."""

    action: Literal["apply", "delete"]
    obj: TCPLoadBalancer | EndpointSlice
    reason: str


class Plan(msgspec.Struct, frozen=True):
    """Writes in order: of the load balancer, then of slices. ``conflict`` names an object that is not ours."""

    of_load_balancer: tuple[HubWrite, ...] = ()
    of_slices: tuple[HubWrite, ...] = ()
    conflict: str = ""

    @property
    def writes(self) -> tuple[HubWrite, ...]:
        """Return all writes in order."""
        return (*self.of_load_balancer, *self.of_slices)


def plan_publication(desired: Publication, present: Present, *, is_ours: IsOurs) -> Plan:
    """Plan what makes the hub hold ``desired``."""
    load_balancer, name = present.load_balancer, desired.load_balancer.metadata.name
    if load_balancer is not None:
        if not is_ours(load_balancer):
            return Plan(conflict=f"TCPLoadBalancer {name}")
        if load_balancer.deleting:
            return Plan()
    reason = load_balancer_difference(desired.load_balancer, load_balancer)
    first = (HubWrite("apply", desired.load_balancer, reason),) if reason else ()
    if desired.slices is None:
        return Plan(first)
    names = {each.metadata.name for each in desired.slices}
    foreign = [each.metadata.name for each in present.slices if each.metadata.name in names and not is_ours(each)]
    if foreign:
        return Plan(first, conflict=f"EndpointSlice {foreign[0]}")
    return Plan(first, plan_slices(desired.slices, filter(is_ours, present.slices)))


def plan_slices(desired: Iterable[EndpointSlice], present: Iterable[EndpointSlice]) -> tuple[HubWrite, ...]:
    """Plan what makes ``present``, which are ours, equal to ``desired``."""
    by_name = {each.metadata.name: each for each in present}
    writes: list[HubWrite] = []
    for each in desired:
        existing = by_name.pop(each.metadata.name, None)
        if existing is not None and existing.deleting:
            continue
        reason = slice_difference(each, existing)
        if reason:
            writes.append(HubWrite("apply", each, reason))
    unwanted = [by_name[name] for name in sorted(by_name) if not by_name[name].deleting]
    return (*writes, *(HubWrite("delete", each, "no longer among the backends") for each in unwanted))


def plan_removal(present: Present, *, reason: str, is_ours: IsOurs) -> Plan:
    """Plan what takes away everything that was published for an origin."""

    def deletes(*objects: TCPLoadBalancer | EndpointSlice) -> tuple[HubWrite, ...]:
        return tuple(HubWrite("delete", obj, reason) for obj in objects if is_ours(obj) and not obj.deleting)

    load_balancers = () if present.load_balancer is None else (present.load_balancer,)
    return Plan(deletes(*load_balancers), deletes(*sorted(present.slices, key=lambda each: each.metadata.name)))
