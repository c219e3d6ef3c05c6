"""``fairlead member``: drain a member of all GlobalServices, and use it again.

The commands change ``spec.members`` of each GlobalService that lists the member; the hub does the rest. Either all of
them may be drained, or none is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Annotated

import msgspec
import typer

from fairlead.api.globalservice import GLOBAL_SERVICES, GlobalMember, GlobalService
from fairlead.api.meta import JSONObject
from fairlead.api.names import MANAGER_CLI
from fairlead.cli.hub_reader import connect_hub
from fairlead.cli.options import HubApi, Output, OutputOption, PlainCommand, PlainGroup, takes_groups
from fairlead.cli.output import emit
from fairlead.cli.run import epilog_of, run_async
from fairlead.errors import Terminal
from fairlead.kube.cluster import Cluster
from fairlead.model.in_words import counted

MemberName = Annotated[
    str, typer.Argument(metavar="NAME", help="Name of the member, as its Tenant.", show_default=False)
]

app = typer.Typer(cls=PlainGroup, no_args_is_help=True, help="Drain a member of GlobalServices, and use it again.")


@app.callback()
def member() -> None:
    """Drain a member of GlobalServices, and use it again."""


@app.command("drain", cls=PlainCommand, epilog=epilog_of("member drain"))
@takes_groups
def drain(
    name: MemberName,
    force: Annotated[bool, typer.Option("--force", help="Even if other members then exceed their maxShare.")] = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Send new connections of all GlobalServices to other members; existing connections are kept.

    Rejected when a GlobalService would have no other member, or when another member would exceed its maxShare and
    --force is not given. To use the member again: undrain.
    """
    run_async(lambda: _change(name.removeprefix("tenant/"), api, output, drained=True, force=force))


@app.command("undrain", cls=PlainCommand, epilog=epilog_of("member undrain"))
@takes_groups
def undrain(name: MemberName, output: OutputOption = Output.TABLE, *, api: HubApi) -> None:
    """Use a drained member of GlobalServices again."""
    run_async(lambda: _change(name.removeprefix("tenant/"), api, output, drained=False, force=False))


async def _change(name: str, api: HubApi, output: Output, *, drained: bool, force: bool) -> None:
    async with connect_hub(api) as cluster:
        listing = [
            obj
            for obj in await cluster.list(GLOBAL_SERVICES)
            if any(member.tenant == name for member in obj.spec.members)
        ]
        if not listing:
            raise Terminal(f"no GlobalService lists member {name}; kubectl get globalservices -A shows their members")

        def changed(member: GlobalMember) -> GlobalMember:
            return msgspec.structs.replace(member, drain=drained, force=drained and force)

        changes = {obj.key: _with(obj, name, changed) for obj in listing}
        if drained:
            _check(name, [changes[obj.key] for obj in listing])
        differing = [obj for obj in listing if changes[obj.key].spec != obj.spec]
        await asyncio.gather(*(_write(cluster, changes[obj.key]) for obj in differing))
    done = "is drained" if drained else "is in use again"
    rows = [f"{obj.metadata.namespace}/{obj.metadata.name}" for obj in listing]
    last = f"Member {name} {done} in {counted(len(rows), 'GlobalService')}: {', '.join(rows)}."
    if drained:
        last += f" To use it again: fairlead member undrain {name}"
    value = {"member": name, "drained": drained, "globalServices": rows}
    emit(output, value, lines=lambda: [last], names=lambda: [f"globalservice/{row}" for row in rows])


def _with(obj: GlobalService, name: str, changed: Callable[[GlobalMember], GlobalMember]) -> GlobalService:
    members = [changed(member) if member.tenant == name else member for member in obj.spec.members]
    return msgspec.structs.replace(obj, spec=msgspec.structs.replace(obj.spec, members=members))


def _check(name: str, objects: list[GlobalService]) -> None:
    """Raise ``Terminal`` when one of ``objects`` cannot be without the member."""
    from fairlead.translate.global_service import drain_problem

    for obj in objects:
        subject = f"GlobalService {obj.metadata.namespace}/{obj.metadata.name}"
        if all(member.drain or not member.weight for member in obj.spec.members):
            raise Terminal(
                f"{subject} has no other member with a weight, so {name} was not drained anywhere; add a member to its "
                "spec.members, or delete it"
            )
        if problem := drain_problem(obj.spec):
            raise Terminal(f"{subject}: {problem}; {name} was not drained anywhere (--force drains it all the same)")


async def _write(cluster: Cluster, obj: GlobalService) -> None:
    members: list[JSONObject] = msgspec.to_builtins(obj.spec.members)
    # A list is replaced as a whole: the version keeps a change by others from being lost.
    meta = {"uid": obj.metadata.uid, "resourceVersion": obj.metadata.resource_version}
    patch: JSONObject = {"metadata": meta, "spec": {"members": members}}
    await cluster.merge_patch(GLOBAL_SERVICES, obj.metadata.namespace, obj.metadata.name, patch, manager=MANAGER_CLI)
