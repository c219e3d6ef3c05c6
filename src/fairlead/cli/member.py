"""``fairlead member`` drains a member of all GlobalServices, ``fairlead shift`` moves weights of one in steps.

The commands change ``spec.members`` and ``spec.shift``; the hub does the rest. Either all GlobalServices that list a
member may be drained, or none is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

import msgspec

from fairlead.api.drill import DRILLS, Drill, DrillSpec
from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalMember, GlobalService, GlobalShift
from fairlead.api.meta import JSONObject
from fairlead.api.names import MANAGER_CLI
from fairlead.api.times import wire_time
from fairlead.cli.hub_reader import connect_hub
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import emit
from fairlead.errors import BadConfiguration, Forbidden, NotFound, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.kube.writes import on_newest
from fairlead.model.in_words import counted

#: A member may get so many times the highest rate that a drill has measured of it.
_ABOVE_PEAK = 1.2
#: How often objects are read again that others have changed meanwhile.

T = TypeVar("T")


async def change_drain(name: str, api: HubApi, output: Output, *, drained: bool, force: bool) -> None:
    """Drain a member of all GlobalServices that list it, or use it again."""
    async with connect_hub(api) as cluster:
        rows = await on_newest(lambda: _drain(cluster, name, drained=drained, force=force))
    done = "is drained" if drained else "is in use again"
    last = f"Member {name} {done} in {counted(len(rows), 'GlobalService')}: {', '.join(rows)}."
    if drained:
        last += f" To use it again: fairlead member undrain {name}"
    value = {"member": name, "drained": drained, "globalServices": rows}
    emit(output, value, lines=lambda: [last], names=lambda: [f"globalservice/{row}" for row in rows])


async def _drain(cluster: Cluster, name: str, *, drained: bool, force: bool) -> list[str]:
    """Drain a member, or use it again, in all GlobalServices that list it; return their names."""
    listing = [
        obj for obj in await cluster.list(GLOBAL_SERVICES) if any(member.tenant == name for member in obj.spec.members)
    ]
    if not listing:
        raise Terminal(f"no GlobalService lists member {name}; kubectl get globalservices -A shows their members")

    def changed(member: GlobalMember) -> GlobalMember:
        return msgspec.structs.replace(member, drain=drained, force=drained and force)

    changes = {obj.key: _with(obj, name, changed) for obj in listing}
    if drained:
        _check(name, [changes[obj.key] for obj in listing])
    if drained and not force:
        _check_peaks(name, listing, await _drills(cluster))
    differing = [obj for obj in listing if changes[obj.key].spec != obj.spec]
    writes = (_write(cluster, changes[obj.key]) for obj in differing)
    # Those that can be written are, whatever becomes of the others.
    for failure in filter(None, await asyncio.gather(*writes, return_exceptions=True)):
        raise failure
    return [f"{obj.metadata.namespace}/{obj.metadata.name}" for obj in listing]


def _with(obj: GlobalService, name: str, changed: Callable[[GlobalMember], GlobalMember]) -> GlobalService:
    members = [changed(member) if member.tenant == name else member for member in obj.spec.members]
    return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, members=members))


def _check(name: str, objects: list[GlobalService]) -> None:
    """Raise ``Terminal`` when one of ``objects`` cannot be without the member."""
    from fairlead.translate.global_service import drain_problem, with_served_tiers

    for obj in objects:
        subject = f"GlobalService {obj.metadata.namespace}/{obj.metadata.name}"
        if all(member.drain or not member.weight for member in obj.spec.members):
            raise Terminal(
                f"{subject} has no other member with a weight, so {name} was not drained anywhere; add a member to its "
                "spec.members, or delete it"
            )
        if problem := drain_problem(with_served_tiers(obj)):
            raise Terminal(f"{subject}: {problem}; {name} was not drained anywhere (--force drains it all the same)")


def _check_peaks(name: str, objects: Iterable[GlobalService], drills: Sequence[Drill]) -> None:
    """Raise ``Terminal`` when another member would get far more than any drill has measured of it."""
    from fairlead.status.drill import preview_of

    for preview in preview_of(DrillSpec(name), objects, drills):
        for member in preview.members:
            if member.peak and member.expected and member.expected > _ABOVE_PEAK * member.peak:
                raise Terminal(
                    f"GlobalService {preview.name}: with {name} drained, {member.tenant} would get up to "
                    f"{member.expected:.1f}/s, and drills have measured at most {member.peak:.1f}/s of it. Nothing "
                    f"was drained (--force drains it all the same). Rehearse with: fairlead drill member {name}"
                )


async def _drills(cluster: Cluster) -> Sequence[Drill]:
    """Return the drills; none where they cannot be listed, since nothing is known of peaks then."""
    try:
        return await cluster.list(DRILLS)
    except (Forbidden, NotFound):
        return ()


async def _write(cluster: Cluster, obj: GlobalService) -> None:
    members: list[JSONObject] = msgspec.to_builtins(obj.spec.members)
    # A list is replaced as a whole: the version keeps a change by others from being lost.
    meta = {"uid": obj.metadata.uid, "resourceVersion": obj.metadata.resource_version}
    spec: JSONObject = {"members": members}
    if obj.spec.shift is not None:
        spec["shift"] = msgspec.to_builtins(obj.spec.shift)
    patch: JSONObject = {"metadata": meta, "spec": spec}
    await cluster.merge_patch(GLOBAL_SERVICES, obj.metadata.namespace, obj.metadata.name, patch, manager=MANAGER_CLI)


def parsed_weights(texts: Iterable[str]) -> dict[str, int]:
    """Return the weight of each member; several may be in one text, separated by commas."""
    weights: dict[str, int] = {}
    for part in ",".join(texts).split(",") if texts else ():
        name, _, weight = part.partition("=")
        if not name or not weight.isdecimal() or int(weight) > 1000:
            raise BadConfiguration(f"{part!r} is not a weight such as west=10; weights are 0 to 1000")
        if name in weights:
            raise BadConfiguration(f"{name} has two weights, {weights[name]} and {weight}; give one of them")
        weights[name] = int(weight)
    return weights


async def move_weights(service: str, weights: Mapping[str, int], how: GlobalShift, api: HubApi, output: Output) -> None:
    """Begin a shift to ``weights``; without weights, end the present shift where it is."""
    async with connect_hub(api) as cluster:
        obj, weights = await on_newest(lambda: _shift(cluster, service, weights, how))
    name = f"{obj.metadata.namespace}/{obj.metadata.name}"
    to = ", ".join(f"{member.tenant} {member.weight}" for member in obj.spec.members)
    line = f"GlobalService {name} moves to {to}, {how.step} % every {how.every}. Its progress: fairlead status"
    value = {"globalService": name, "weights": dict(weights)}
    emit(output, value, lines=lambda: [line], names=lambda: [f"globalservice/{name}"])


async def _shift(
    cluster: Cluster, service: str, weights: Mapping[str, int], how: GlobalShift
) -> tuple[GlobalService, Mapping[str, int]]:
    """Write the spec of a shift; return the object as it was written, and the weights that were asked for."""
    from fairlead.translate.global_service import share_problem, with_served_tiers
    from fairlead.translate.shift import in_words, weights_in_force

    obj = _global_service(await cluster.list(GLOBAL_SERVICES), service)
    subject = f"GlobalService {obj.metadata.namespace}/{obj.metadata.name}"
    known, asked = obj.status.shift, obj.spec.shift
    begins = asked is not None and asked.request != known.request
    under_way = begins or (bool(known.members) and known.state == "Shifting")
    if weights and under_way:
        where = in_words(known) or "the first step is due"
        raise Terminal(f"{subject} is already being shifted ({where}); wait, or end the shift with --stay")
    if not weights:
        if not under_way or not known.members:
            raise Terminal(f"{subject} is not being shifted")
        weights = weights_in_force(known)
    names = [member.tenant for member in obj.spec.members]
    if missing := sorted(set(weights) - set(names)):
        raise Terminal(f"{subject} has no member {missing[0]}; its members are {', '.join(names)}")
    members = [
        msgspec.structs.replace(member, weight=weights.get(member.tenant, member.weight)) for member in obj.spec.members
    ]
    request = wire_time(cluster.server_clock.now())
    spec = msgspec.structs.replace(obj.spec, members=members, shift=msgspec.structs.replace(how, request=request))
    obj = msgspec.structs.replace(obj, spec=spec)
    if problem := share_problem(with_served_tiers(obj)):
        raise Terminal(f"{subject}: {problem}")
    await _write(cluster, obj)
    return obj, weights


def _global_service(listing: Iterable[GlobalService], service: str) -> GlobalService:
    """Return the GlobalService with this namespace/name, else the one of this Service."""
    objects = list(listing)
    named = [obj for obj in objects if f"{obj.metadata.namespace}/{obj.metadata.name}" == service]
    matches = named or [obj for obj in objects if obj.spec.service == service]
    if not matches:
        raise Terminal(f"no GlobalService is {service}, nor of Service {service}; kubectl get globalservices -A")
    if len(matches) > 1:
        names = ", ".join(f"{obj.metadata.namespace}/{obj.metadata.name}" for obj in matches)
        raise Terminal(f"{service} is ambiguous: {names}; give the GlobalService")
    return matches[0]
