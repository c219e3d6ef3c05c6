"""``fairlead proxy``: proxy machines, which serve load balancers outside the hub and announce their addresses.

The commands work at the hub's API; the hub and the machine do the work, and the command watches the object. Safe to
repeat after an interruption. An upgrade is a version or a path in ``spec.upgrade`` of each machine.
Never: prints a token anywhere but on stdout, in the one command that uses it; takes the last machine of an address out
of service without ``--force``.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping, Sequence

import msgspec

from fairlead.api.kubernetes import SECRETS
from fairlead.api.meta import JSONObject
from fairlead.api.names import MANAGER_CLI, SYSTEM_NAMESPACE, did_you_mean, replica_key
from fairlead.api.proxymachine import PROXY_MACHINES, ProxyMachine, lease_name
from fairlead.api.tenant import STAMPED_LEASES, age_s
from fairlead.api.times import wire_time
from fairlead.cli.hub_reader import check_kinds, connect_hub, read_hub, read_machines
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import VerbAnswer, emit, say, show
from fairlead.cli.run import ATTENTION, OK
from fairlead.cli.selection import matcher
from fairlead.errors import Forbidden, NotFound, Terminal
from fairlead.hub.machines.plans import only_announced_by
from fairlead.kube.cluster import Cluster
from fairlead.model.in_words import counted, listed
from fairlead.status.formatting import age_text, columns
from fairlead.status.machines import HEADER, UpgradeRow, cells, machine_rows, upgrade_rows

_NO_ENDPOINT = (
    "No hub serves proxy machines yet: start it with --machines HOST:PORT, an address of the hub that machines reach"
)
_POLL_S = 0.5
#: A machine that has reported within this time can still be drained.
_HEARD_S = 30.0
_HEADER = ("MACHINE", "GROUP", "UPGRADE", "ENVOY", "WANTED", "SINCE", "MESSAGE")


async def create_token(group: str, api: HubApi, output: Output) -> None:
    """Create a token and print the command with which a machine joins."""
    # Imported here: these load the cryptography.
    from fairlead.hub.machines.control import read_endpoints
    from fairlead.hub.machines.tokens import new_token

    async with connect_hub(api) as cluster:
        await check_kinds(cluster)
        endpoints = await read_endpoints(cluster)
        if not endpoints:
            raise Terminal(_NO_ENDPOINT)
        leader = replica_key((await read_hub(cluster)).holder)
        endpoint = endpoints.get(leader) or next(iter(endpoints.values()))
        made = new_token(cluster.server_clock.now(), group=group)
        await _drop_expired(cluster)
        await cluster.create(SECRETS, made.secret)
    command = f"fairlead proxy join {endpoint.address} --token {made.text} --ca-fingerprint {endpoint.fingerprint}"
    value = {
        "command": command,
        "hub": endpoint.address,
        "token": made.text,
        "caFingerprint": endpoint.fingerprint,
        "group": group,
        "expires": wire_time(made.expires),
    }
    emit(output, value, lines=lambda: [command], names=lambda: [command])


async def _drop_expired(cluster: Cluster) -> None:
    from fairlead.hub.machines.tokens import drop_expired

    try:
        await drop_expired(cluster, cluster.server_clock.now())
    except Forbidden:
        return  # one who may only create Secrets leaves expired tokens, which are worth nothing


async def show_machines(name: str, selector: str, api: HubApi, output: Output, *, watch: bool) -> int:
    """Print the machines, or one of them; return the exit code."""
    matches = matcher(selector)

    async def ask() -> VerbAnswer:
        return await _listing(name, matches, api, output)

    return await show(ask, output, watch=watch)


async def _listing(
    name: str, matches: Callable[[Mapping[str, str] | None], bool], api: HubApi, output: Output
) -> VerbAnswer:
    async with connect_hub(api) as cluster:
        await check_kinds(cluster)
        if name:
            name = (await _machine(cluster, name)).metadata.name
        read = await read_machines(cluster)
        now = cluster.server_clock.now()
    chosen = [
        machine for machine in read.machines if matches(machine.metadata.labels) and name in ("", machine.metadata.name)
    ]
    rows = machine_rows(chosen, read.leases, now)
    wide = output is Output.WIDE
    header = (*HEADER, "ENVOY", "CERTIFICATE ENDS") if wide else HEADER

    def lines() -> list[str]:
        if not rows and read.machines:
            return ["No proxy machine has these labels; fairlead proxy list without -l shows all of them."]
        if not rows:
            return ["No proxy machines yet; add one with: fairlead proxy token"]
        problems = [f"! machine {row.name}: {sentence}" for row in rows for sentence in row.problems]
        return [*columns([header, *(cells(row, now, wide=wide) for row in rows)], indent=""), *problems]

    lasting = [msgspec.structs.replace(row, last_report_age_s=None) for row in rows]
    return VerbAnswer(rows, lines, lambda: (f"proxymachine/{row.name}" for row in rows), lasting=lasting)


async def drain_machine(name: str, api: HubApi, output: Output, *, wait_s: float, force: bool) -> int:
    """Drain a machine; return the exit code."""
    async with connect_hub(api) as cluster:
        machine = await _machine(cluster, name)
        name = machine.metadata.name
        silent_s = await _silent_s(cluster, name)
        heard = silent_s is not None and silent_s < _HEARD_S
        quiet = await _drained(cluster, machine, wait_s=wait_s if heard else 0.0, force=force, output=output)
    value = {"machine": name, "drained": True, "newConnections": "None" if quiet else "Some"}
    last = f"Machine {name} is drained. To use it again: fairlead proxy undrain {name}"
    if not heard:
        last = (
            f"Machine {name} {_last_report(silent_s)}, so it may not know that it is drained. It withdraws its "
            "addresses when it reaches the hub again"
        )
    elif not quiet:
        last = (
            f"Machine {name} is drained, and still gets new connections after {wait_s:g} s. Clients may have kept its "
            "address; see: fairlead proxy list"
        )
    emit(output, value, lines=lambda: [last], names=lambda: [f"proxymachine/{name}"])
    return OK if quiet else ATTENTION


async def _drained(cluster: Cluster, machine: ProxyMachine, *, wait_s: float, force: bool, output: Output) -> bool:
    """Drain a machine; return whether it gets no new connections any longer."""
    name = machine.metadata.name
    alone = only_announced_by(machine, await cluster.list(PROXY_MACHINES))
    if alone and not force and not machine.spec.drained:
        raise Terminal(
            f"No other machine can announce {listed(alone, 3)}, so machine {name} was not drained. Use another machine "
            "on the same subnet or with the same routers, or give --force to stop serving"
        )
    if not machine.spec.drained:
        patch = {"metadata": {"uid": machine.metadata.uid}, "spec": {"drained": True}}
        await cluster.merge_patch(PROXY_MACHINES, "", name, patch, manager=MANAGER_CLI)
    if output in (Output.TABLE, Output.WIDE) and wait_s:
        say([f"Machine {name} withdraws its addresses; existing connections have {wait_s:g} s."])
    loop = asyncio.get_running_loop()
    end_s = loop.time() + wait_s
    while True:
        try:
            now = await cluster.get(PROXY_MACHINES, "", name)
        except NotFound:
            return True
        quiet = now.status.new_connections == "None" and not now.status.announced
        if quiet and not now.status.open_connections:
            return True
        if loop.time() >= end_s:
            if wait_s and not quiet:
                await _check_hub(cluster)
            if quiet and output in (Output.TABLE, Output.WIDE):
                say([f"Machine {name} still has {counted(now.status.open_connections, 'open connection')}."])
            return quiet
        await asyncio.sleep(min(_POLL_S, max(0.0, end_s - loop.time())))


async def _check_hub(cluster: Cluster) -> None:
    """Raise when no hub leads, so that nothing was done."""
    if not (await read_hub(cluster)).leading:
        raise Terminal("No hub leads, so the machine does not know that it is drained; start one with: fairlead hub")


async def undrain_machine(name: str, api: HubApi, output: Output) -> None:
    """Use a drained machine again."""
    async with connect_hub(api) as cluster:
        machine = await _machine(cluster, name)
        name = machine.metadata.name
        done = f"Machine {name} is not drained; nothing was changed."
        if machine.spec.drained:
            patch = {"metadata": {"uid": machine.metadata.uid}, "spec": {"drained": False}}
            await cluster.merge_patch(PROXY_MACHINES, "", name, patch, manager=MANAGER_CLI)
            done = f"Machine {name} is in use again; its addresses follow once its Envoy has everything."
    value = {"machine": name, "drained": False}
    emit(output, value, lines=lambda: [done], names=lambda: [f"proxymachine/{name}"])


async def remove_machine(
    name: str, api: HubApi, output: Output, *, wait_s: float, force: bool, ignore_not_found: bool
) -> int:
    """Drain a machine and remove it; return the exit code."""
    async with connect_hub(api) as cluster:
        try:
            machine = await _machine(cluster, name)
        except NotFound as error:
            if not ignore_not_found:
                raise
            sentence, value = error.sentence, {"machine": name, "done": "NotFound"}
            emit(output, value, lines=lambda: [sentence], names=tuple)
            return OK
        name = machine.metadata.name
        silent_s = await _silent_s(cluster, name)
        heard = silent_s is not None and silent_s < _HEARD_S
        quiet = not heard or await _drained(cluster, machine, wait_s=wait_s, force=force, output=output)
        await cluster.delete(PROXY_MACHINES, "", name, uid=machine.metadata.uid)
    lines = [f"Machine {name} is removed, and its certificate is revoked."]
    if not heard:
        lines.append(f"The machine {_last_report(silent_s)}. If it still runs, it serves until it is stopped.")
    lines.append(
        "Next: start the hub without --announce; with it, this machine is there again"
        if machine.is_of_hub
        else "Next, on the machine: systemctl disable --now fairlead-proxy"
    )
    value = {"machine": name, "done": "Removed", "drained": heard and quiet}
    emit(output, value, lines=lambda: lines, names=lambda: [f"proxymachine/{name}"])
    return OK if quiet else ATTENTION


def _last_report(silent_s: float | None) -> str:
    return "has never reported" if silent_s is None else f"last reported {age_text(silent_s)} ago"


async def _silent_s(cluster: Cluster, name: str) -> float | None:
    try:
        lease = await cluster.get(STAMPED_LEASES, SYSTEM_NAMESPACE, lease_name(name))
    except NotFound:
        return None
    return age_s(lease, cluster.server_clock.now())


async def _machine(cluster: Cluster, name: str) -> ProxyMachine:
    """Return a machine; the error names those that are near, else those that there are."""
    await check_kinds(cluster)
    name = name.removeprefix("proxymachine/")
    try:
        return await cluster.get(PROXY_MACHINES, "", name)
    except NotFound as error:
        names = sorted(machine.metadata.name for machine in await cluster.list(PROXY_MACHINES))
        hint = did_you_mean(name, names, most=3) or (
            f" There are: {listed(names, 20)}." if names else " There are none; add one with: fairlead proxy token"
        )
        raise NotFound(f"Machine {name} does not exist at {cluster.server}.{hint}", detail=error.sentence) from error


async def upgrade_machines(wanted: JSONObject, group: str, api: HubApi, output: Output) -> int:
    """Have the machines of a group change their Envoy; return the exit code."""
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
        rows = await _watch_upgrade(cluster, {machine.metadata.name for machine in pending}, requested, output)
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


async def _watch_upgrade(cluster: Cluster, names: set[str], requested: str, output: Output) -> list[UpgradeRow]:
    """Follow the machines until all are done or one has failed; machines that are removed are forgotten."""
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


async def show_upgrade(group: str, api: HubApi, output: Output, *, stop: bool) -> int:
    """Print how far the upgrade is, or keep further machines from beginning; return the exit code."""
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
        raise NotFound(f"No proxy machines{of_group} found. Add one with: fairlead proxy token")
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
    if any(machine.status.upgrade.phase in ("Draining", "Restarting", "Returning") for machine in machines):
        return
    for machine in pending:
        alone = only_announced_by(machine, machines)
        if alone and not machine.drained:
            raise Terminal(
                f"No other machine can announce {listed(alone, 3)} while machine {machine.metadata.name} is upgraded, "
                "so nothing was changed. Add another machine, or give --force for an interruption of seconds"
            )
