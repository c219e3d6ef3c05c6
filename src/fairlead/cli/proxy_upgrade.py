"""``fairlead proxy upgrade``: another Envoy on proxy machines, one machine after another.

In: a version or a path, written into ``spec.upgrade`` of each machine. The hub does the work, and the command watches
it: to interrupt the command interrupts nothing. Out: a line for each step, and exit code 0 once all machines are done.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.api.meta import JSONObject
from fairlead.api.names import MANAGER_CLI, name_problem
from fairlead.api.proxymachine import PROXY_MACHINES, ProxyMachine
from fairlead.api.times import wire_time
from fairlead.cli.hub_reader import check_kinds, connect_hub, read_hub
from fairlead.cli.options import HubApi, Output, OutputOption, duration_s, takes_groups
from fairlead.cli.output import emit, say
from fairlead.cli.run import ATTENTION, OK, run_for_code
from fairlead.errors import BadConfiguration, NotFound, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.model.in_words import listed
from fairlead.status.formatting import columns

if TYPE_CHECKING:
    from fairlead.status.machines import UpgradeRow

_POLL_S = 0.5
_HEADER = ("MACHINE", "GROUP", "UPGRADE", "ENVOY", "WANTED", "SINCE", "MESSAGE")


@takes_groups
def upgrade(
    to: Annotated[
        str, typer.Option("--to", metavar="VERSION", help="Version; a machine that finds another one refuses.")
    ] = "",
    binary: Annotated[
        str, typer.Option("--binary", metavar="PATH", help="Envoy on each machine; default: the one of pip there.")
    ] = "",
    group: Annotated[str, typer.Option("--group", metavar="NAME", help="Only machines of this group.")] = "",
    for_: Annotated[
        str, typer.Option("--for", metavar="DURATION", help="How long connections of a machine may stay open.")
    ] = "5m",
    force: Annotated[
        bool, typer.Option("--force", help="Even if no other machine can announce some of the addresses.")
    ] = False,
    status: Annotated[bool, typer.Option("--status", help="Only show how far the upgrade is.")] = False,
    stop: Annotated[bool, typer.Option("--stop", help="Do not begin with further machines.")] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Change Envoy on the machines, one after another; each is drained first, and in service again afterwards.

    Install the new Envoy on every machine before, with pip or at --binary. The first machine that is not healthy goes
    back to its former Envoy, and no further one begins. Give the same command again to continue.
    """
    if group and (problem := name_problem(group)):
        raise BadConfiguration(f"--group: {problem}")
    if binary and not binary.startswith("/"):
        raise BadConfiguration("--binary: not an absolute path; give the path that Envoy has on the machines")
    if status or stop:
        if to or binary or (status and stop):
            raise BadConfiguration("--status and --stop take no version or path, and not each other")
        run_for_code(lambda: _look(group, api, output, stop=stop))
        return
    if not (to or binary):
        raise BadConfiguration(
            "name the Envoy to change to: --to VERSION if pip has installed it on the machines, else --binary PATH"
        )
    drain_s = round(duration_s(for_, "--for"))
    wanted = {"binary": binary, "version": to.removeprefix("v"), "drainSeconds": drain_s, "force": force}
    run_for_code(lambda: _upgrade(wanted, group, api, output))


async def _upgrade(wanted: JSONObject, group: str, api: HubApi, output: Output) -> int:
    from fairlead.status.machines import upgrade_rows  # loads what decides about plans

    async with connect_hub(api) as cluster:
        machines = await _machines(cluster, group)
        pending = [machine for machine in machines if not _has(machine, wanted)]
        if pending and not (await read_hub(cluster)).leading:
            raise Terminal("No hub leads, so no machine would be upgraded; start one with: fairlead hub")
        if not wanted["force"]:
            _check_not_alone(pending, await cluster.list(PROXY_MACHINES))
        requested = f"{wire_time(cluster.server_clock.now())}-{secrets.token_hex(4)}"
        for machine in pending:
            # A hub that has no field for it would drop the request silently.
            patch = {"metadata": {"uid": machine.metadata.uid}, "spec": {"upgrade": {**wanted, "requested": requested}}}
            written = await cluster.merge_patch(PROXY_MACHINES, "", machine.metadata.name, patch, manager=MANAGER_CLI)
            if written.spec.upgrade is None:
                raise Terminal("The hub's API has no field spec.upgrade; upgrade the hub first")
        rows = await _watch(cluster, {machine.metadata.name for machine in pending}, requested, output)
        kept = [row for row in upgrade_rows(machines) if row.name not in {row.name for row in rows}]
    failed = [row for row in rows if row.upgrade == "Failed"]
    envoy = f"Envoy {wanted['version']}" if wanted["version"] else f"Envoy of {wanted['binary']}"
    last = f"All {len(machines)} machines run {envoy}." if len(machines) > 1 else f"The machine runs {envoy}."
    if failed:
        last = (
            f"Upgrade stopped: machine {failed[0].name} failed, and no further machine begins. When the cause is "
            "solved, give the same command again"
        )
    ordered = sorted([*rows, *kept], key=lambda row: row.name)
    emit(output, ordered, lines=lambda: [last], names=lambda: [f"proxymachine/{row.name}" for row in ordered])
    return ATTENTION if failed else OK


async def _watch(cluster: Cluster, names: set[str], requested: str, output: Output) -> list[UpgradeRow]:
    """Follow the machines until all are done or one has failed; machines that are removed are forgotten."""
    from fairlead.status.machines import upgrade_rows  # loads what decides about plans

    said: dict[str, str] = {}
    while True:
        members = [machine for machine in await cluster.list(PROXY_MACHINES) if machine.metadata.name in names]
        members = [
            machine for machine in members if machine.spec.upgrade and machine.spec.upgrade.requested == requested
        ]
        rows = [
            row
            for machine, row in zip(members, upgrade_rows(members), strict=True)
            if machine.status.upgrade.requested == requested
        ]
        for row in rows:
            text = f"Machine {row.name}: {row.upgrade}" + (f": {row.message}" if row.message else "")
            if said.get(row.name) != text and output in (Output.TABLE, Output.WIDE):
                said[row.name] = text
                say([text])
        if any(row.upgrade == "Failed" for row in rows):
            return rows
        if len(rows) == len(members) and all(row.upgrade == "Done" for row in rows):
            return rows
        await asyncio.sleep(_POLL_S)


async def _look(group: str, api: HubApi, output: Output, *, stop: bool) -> int:
    from fairlead.status.machines import upgrade_rows  # loads what decides about plans

    async with connect_hub(api) as cluster:
        machines = await _machines(cluster, group)
        if stop:
            for machine in machines:
                if machine.spec.upgrade is not None and machine.status.upgrade.phase in ("", "Waiting"):
                    patch = {"metadata": {"uid": machine.metadata.uid}, "spec": {"upgrade": None}}
                    await cluster.merge_patch(PROXY_MACHINES, "", machine.metadata.name, patch, manager=MANAGER_CLI)
            machines = await _machines(cluster, group)
    rows = upgrade_rows(machines)
    emit(
        output,
        rows,
        lines=lambda: columns([_HEADER, *(_cells(row) for row in rows)], indent=""),
        names=lambda: [f"proxymachine/{row.name}" for row in rows],
    )
    return ATTENTION if any(row.upgrade == "Failed" for row in rows) else OK


def _cells(row: UpgradeRow) -> tuple[str, ...]:
    wanted = " ".join(filter(None, (row.version, row.binary)))
    return (
        *(row.name, row.group, row.upgrade or "-", row.envoy or "-"),
        *(wanted or "-", row.since or "-", row.message or "-"),
    )


async def _machines(cluster: Cluster, group: str) -> list[ProxyMachine]:
    await check_kinds(cluster)
    joined = [machine for machine in await cluster.list(PROXY_MACHINES) if not machine.is_of_hub]
    machines = [machine for machine in joined if group in ("", machine.spec.group)]
    if not machines:
        of_group = f" of group {group}" if group else ""
        raise NotFound(f"There are no proxy machines{of_group}; add one with: fairlead proxy token")
    return sorted(machines, key=lambda machine: machine.metadata.name)


def _has(machine: ProxyMachine, wanted: JSONObject) -> bool:
    """Return whether a machine runs the wanted Envoy already, by its last upgrade or its version."""
    before, state = machine.spec.upgrade, machine.status.upgrade
    if before is None or before.requested != state.requested or state.phase != "Done":
        return not wanted["binary"] and machine.status.envoy == wanted["version"]
    same = (before.binary, before.version) == (wanted["binary"], wanted["version"])
    return same and wanted["version"] in ("", machine.status.envoy)


def _check_not_alone(pending: Sequence[ProxyMachine], machines: Sequence[ProxyMachine]) -> None:
    """Raise when an address would not be announced while a machine is upgraded.

    While one is upgraded now, it announces nothing; the hub judges each further machine when its turn comes.
    """
    from fairlead.hub.machines.plans import only_announced_by

    if any(machine.status.upgrade.phase in ("Draining", "Restarting", "Returning") for machine in machines):
        return
    for machine in pending:
        alone = only_announced_by(machine, machines)
        if alone and not machine.drained:
            raise Terminal(
                f"No other machine can announce {listed(alone, 3)} while machine {machine.metadata.name} is upgraded, "
                "so nothing was changed. Add another machine, or give --force for an interruption of seconds"
            )
