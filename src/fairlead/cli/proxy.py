"""``fairlead proxy``: proxy machines, which serve load balancers outside the hub and announce their addresses.

``token``, ``list``, ``drain``, ``undrain`` and ``remove`` work at the hub's API; the hub and the machine do the work,
and the command watches the object. Safe to repeat after an interruption. ``join`` and ``run``, on the machine itself,
are in ``proxy_machine``.
Never: prints a token anywhere but on stdout, in the one command that uses it; takes the last machine of an address out
of service without ``--force``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Annotated

import msgspec
import typer

from fairlead.api.kubernetes import SECRETS
from fairlead.api.names import MANAGER_CLI, SYSTEM_NAMESPACE, did_you_mean, name_problem, replica_key
from fairlead.api.proxymachine import DEFAULT_GROUP, PROXY_MACHINES, ProxyMachine, lease_name
from fairlead.api.tenant import STAMPED_LEASES, age_s
from fairlead.api.times import wire_time
from fairlead.cli.hub_reader import check_kinds, connect_hub, read_hub, read_machines
from fairlead.cli.options import (
    HubApi,
    Labels,
    Output,
    OutputOption,
    PlainCommand,
    PlainGroup,
    Watch,
    duration_s,
    takes_groups,
)
from fairlead.cli.output import VerbAnswer, emit, say, show
from fairlead.cli.proxy_machine import join, run
from fairlead.cli.proxy_upgrade import upgrade
from fairlead.cli.run import ATTENTION, OK, epilog_of, run_async, run_for_code
from fairlead.cli.selection import matcher
from fairlead.errors import BadConfiguration, Forbidden, NotFound, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.model.in_words import counted, listed
from fairlead.status.formatting import age_text, columns

_NO_ENDPOINT = (
    "No hub serves proxy machines yet: start it with --machines HOST:PORT, an address of the hub that machines reach"
)
_POLL_S = 0.5
#: A machine that has reported within this time can still be drained.
_HEARD_S = 30.0

MachineName = Annotated[str, typer.Argument(metavar="MACHINE", help="Name of the machine.", show_default=False)]
DrainTime = Annotated[
    str,
    typer.Option("--for", metavar="DURATION", help="How long existing connections may last, such as 90s or 10m."),
]
Force = Annotated[bool, typer.Option("--force", help="Even if no other machine can announce some of its addresses.")]

app = typer.Typer(cls=PlainGroup, no_args_is_help=True, help="Machines that serve load balancers outside the hub.")


@app.callback()
def proxy() -> None:
    """Machines that serve load balancers outside the hub."""


@app.command("token", cls=PlainCommand, epilog=epilog_of("proxy token"))
@takes_groups
def token(
    group: Annotated[
        str, typer.Option("--group", metavar="NAME", help="Group of the machine that joins with it.")
    ] = DEFAULT_GROUP,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Print the command with which one machine joins; it is valid once, for an hour.

    Run the printed command as root on the machine. The hub has to run with --machines.
    """
    if problem := name_problem(group):
        raise BadConfiguration(f"--group: {problem}")
    run_async(lambda: _token(group, api, output))


async def _token(group: str, api: HubApi, output: Output) -> None:
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


@app.command("list", cls=PlainCommand, epilog=epilog_of("proxy list"))
@takes_groups
def list_machines(
    name: Annotated[str, typer.Argument(metavar="MACHINE", help="Only this machine; all without it.")] = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """List machines: group, state, announced addresses, last report, and last failover with its cause."""
    matches = matcher(selector)

    async def ask() -> VerbAnswer:
        return await _listing(name, matches, api, output)

    run_for_code(lambda: show(ask, output, watch=watch))


async def _listing(
    name: str, matches: Callable[[Mapping[str, str] | None], bool], api: HubApi, output: Output
) -> VerbAnswer:
    from fairlead.status.machines import HEADER, cells, machine_rows  # loads what decides about plans

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


@app.command("drain", cls=PlainCommand, epilog=epilog_of("proxy drain"))
@takes_groups
def drain(
    machine: MachineName,
    for_: DrainTime = "5m",
    force: Force = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Take a machine out of service: other machines announce its addresses, and existing connections may end.

    Waits until it announces nothing, gets less than one new connection a second and has no open ones, or until --for is
    over. Rejected when no other machine can announce one of its addresses, unless --force is given. To use it again:
    undrain.
    """
    wait_s = duration_s(for_, "--for")
    run_for_code(lambda: _drain(machine, api, output, wait_s=wait_s, force=force))


async def _drain(name: str, api: HubApi, output: Output, *, wait_s: float, force: bool) -> int:
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
    from fairlead.hub.machines.plans import only_announced_by

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


@app.command("undrain", cls=PlainCommand, epilog=epilog_of("proxy undrain"))
@takes_groups
def undrain(machine: MachineName, output: OutputOption = Output.TABLE, *, api: HubApi) -> None:
    """Use a drained machine again."""
    run_async(lambda: _undrain(machine, api, output))


async def _undrain(name: str, api: HubApi, output: Output) -> None:
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


@app.command("remove", cls=PlainCommand, epilog=epilog_of("proxy remove"))
@takes_groups
def remove(
    machine: MachineName,
    for_: DrainTime = "5m",
    force: Force = False,
    ignore_not_found: Annotated[
        bool, typer.Option("--ignore-not-found", help="Succeed if there is no such machine, for scripts.")
    ] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Drain a machine, revoke its certificate and forget it.

    A machine that has not reported for 30 seconds is not drained first: it cannot be asked. It may still serve; stop
    it there, too.
    """
    wait_s = duration_s(for_, "--for")
    run_for_code(lambda: _remove(machine, api, output, wait_s=wait_s, force=force, ignore_not_found=ignore_not_found))


async def _remove(name: str, api: HubApi, output: Output, *, wait_s: float, force: bool, ignore_not_found: bool) -> int:
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


for command in (upgrade, join, run):
    app.command(cls=PlainCommand, epilog=epilog_of(f"proxy {command.__name__}"))(command)
