"""``fairlead drill``: rehearse the failure of a member, and show the drills that were.

The command creates a Drill and waits for its end; the hub runs it, also when the command has ended.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterable

import msgspec

from fairlead.api.drill import DRILL_SCHEDULES, DRILLS, Drill, DrillSpec
from fairlead.api.globalservice import GLOBAL_SERVICES
from fairlead.api.meta import ObjectMeta
from fairlead.api.names import MANAGER_CLI
from fairlead.api.tenant import TENANTS
from fairlead.api.times import seconds_from_duration
from fairlead.cli.hub_reader import connect_hub
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import emit
from fairlead.cli.run import ATTENTION, OK
from fairlead.errors import BadConfiguration, NotFound, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.status.drill import history_lines, preview_lines, preview_of, report_of
from fairlead.translate.drill import ENDED, concerned, refusal_of

#: A hub sees a new Drill at once.
_BEGINS_S = 30.0
_LOOK_S = 1.0


async def preview_drill(spec: DrillSpec, api: HubApi, output: Output) -> int:
    """Print what a drill would do; return the exit code."""
    async with connect_hub(api) as cluster:
        drills = await cluster.list(DRILLS)
        services = concerned(spec, await cluster.list(GLOBAL_SERVICES))
        refusal = refusal_of(
            Drill(metadata=ObjectMeta(), spec=spec),
            services,
            tenants=await cluster.list(TENANTS),
            drills=drills,
            schedules=await cluster.list(DRILL_SCHEDULES),
            now=cluster.server_clock.now(),
        )
    previews = preview_of(spec, services, drills)
    verdict = f"The drill would be refused: {refusal}." if refusal else "The drill can begin. Nothing was written."
    value = {
        "member": spec.member,
        "refusal": refusal,
        "globalServices": [
            {"name": preview.name, "members": [member._asdict() for member in preview.members], "notes": preview.notes}
            for preview in previews
        ],
    }
    names = [f"globalservice/{preview.name}" for preview in previews]
    emit(output, value, lines=lambda: [*preview_lines(previews), verdict], names=lambda: names)
    return ATTENTION if refusal else OK


async def run_drill(spec: DrillSpec, api: HubApi, output: Output) -> int:
    """Create a drill, wait for its end and print its report; return the exit code."""
    try:
        seconds_from_duration(spec.duration)
    except ValueError as error:
        raise BadConfiguration(f"--for: {error}") from error
    async with connect_hub(api) as cluster:
        name = f"{spec.member}-{cluster.server_clock.now():%Y%m%d-%H%M%S}"
        present = await cluster.create(DRILLS, {"metadata": {"name": name}, "spec": msgspec.to_builtins(spec)})
        present = await _begun(cluster, present)
        shown = ""
        while present.status.state not in ENDED:
            if shown != present.status.state:
                shown = present.status.state
                sys.stderr.write(f"{_progress(present)}\n")
            await asyncio.sleep(_LOOK_S)
            present = await cluster.get(DRILLS, "", name)
    if present.status.state == "Refused":
        raise Terminal(f"drill {name} was refused: {present.status.message}")
    _report(present, output)
    return _code([present])


async def _begun(cluster: Cluster, present: Drill) -> Drill:
    """Return a new Drill once a hub has begun or refused it; delete it when none does: it must not begin later."""
    name, loop = present.metadata.name, asyncio.get_running_loop()
    ends_s = loop.time() + _BEGINS_S
    while not present.status.state:
        if loop.time() >= ends_s:
            await cluster.delete(DRILLS, "", name, uid=present.metadata.uid)
            where = f" of region {present.spec.region}" if present.spec.region else ""
            raise Terminal(f"no hub{where} began drill {name} within {_BEGINS_S:.0f} s, so it was deleted; start a hub")
        await asyncio.sleep(_LOOK_S / 4)
        present = await cluster.get(DRILLS, "", name)
    return present


def _progress(present: Drill) -> str:
    status, name, member_name = present.status, present.metadata.name, present.spec.member
    match status.state:
        case "Before":
            ends = f"to end it early: fairlead drill stop {name}"
            return f"Drill {name} measures until {status.starts_at}; {ends}"
        case "Drilling":
            return f"Member {member_name} is out of service until {status.ends_at}"
        case _:
            why = f": {status.message}" if status.message else ""
            return f"Member {member_name} serves again since {status.ended_at}{why}; measuring"


def _report(present: Drill, output: Output) -> None:
    name = f"drill/{present.metadata.name}"
    lines = report_of(present).splitlines()
    emit(output, msgspec.to_builtins(present), lines=lambda: lines, names=lambda: [name])


async def show_drills(name: str, api: HubApi, output: Output) -> int:
    """Print all drills, or the report of one; return the exit code."""
    async with connect_hub(api) as cluster:
        if name:
            present = await _named(cluster, name)
            _report(present, output)
            return _code([present])
        drills = await cluster.list(DRILLS)
    drills.sort(key=lambda drill: (drill.metadata.creation_timestamp or "", drill.metadata.name), reverse=True)
    lines = history_lines(drills) if drills else ["No drills found. Begin one with: fairlead drill member NAME"]
    value = [msgspec.to_builtins(drill) for drill in drills]
    emit(output, value, lines=lambda: lines, names=lambda: [f"drill/{drill.metadata.name}" for drill in drills])
    return _code(drills)


def _code(drills: Iterable[Drill]) -> int:
    """Return the exit code of the first drill with a result."""
    results = (drill.status.state for drill in drills if drill.status.state in ENDED - {"Refused"})
    return OK if next(results, "Passed") == "Passed" else ATTENTION


async def stop_drill(name: str, api: HubApi, output: Output) -> None:
    """End a drill now."""
    async with connect_hub(api) as cluster:
        present = await _named(cluster, name)
        if present.status.state in ENDED:
            raise Terminal(f"drill {name} has ended already: {present.status.state}")
        await cluster.merge_patch(DRILLS, "", name, {"spec": {"stop": True}}, manager=MANAGER_CLI)
    line = (
        f"Drill {name} ends, and member {present.spec.member} serves again. Its report: fairlead drill history {name}"
    )
    emit(output, {"drill": name, "stop": True}, lines=lambda: [line], names=lambda: [f"drill/{name}"])


async def _named(cluster: Cluster, name: str) -> Drill:
    try:
        return await cluster.get(DRILLS, "", name)
    except NotFound as error:
        raise NotFound(f"no drill is named {name}; fairlead drill history lists all") from error
