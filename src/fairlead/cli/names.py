"""``fairlead names``: every name, who has it, where it points, and whether it resolves to that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fairlead.cli.complete import complete_hostname
from fairlead.cli.options import (
    HubApi,
    Labels,
    OnlyNamespace,
    Output,
    OutputOption,
    Watch,
    takes_groups,
)
from fairlead.cli.run import ATTENTION, FAILED, OK, run_for_code
from fairlead.cli.selection import matcher
from fairlead.model.in_words import listed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fairlead.api.hostname import Hostname
    from fairlead.cli.names_rows import NameRow


@takes_groups
def names(
    name: Annotated[
        str,
        typer.Argument(
            metavar="NAME",
            help="Only this one: a host name such as shop.example.com, or hostname/NAME; all without it.",
            autocompletion=complete_hostname,
        ),
    ] = "",
    namespace: OnlyNamespace = "",
    selector: Labels = "",
    watch: Watch = False,
    output: OutputOption = Output.TABLE,
    *,
    api: HubApi,
) -> None:
    """Show every Hostname: its owner, its records, and whether the zone's own server answers them.

    The authoritative server of each zone is asked from here; exit code 4 when a name does not resolve to what it
    should, or is not published.
    """
    matcher(selector)  # an invalid selector is rejected before anything is read
    run_for_code(lambda: _show(name, namespace, selector, api, output, watch=watch))


async def _show(name: str, namespace: str, selector: str, api: HubApi, output: Output, *, watch: bool) -> int:
    from fairlead.api.hostname import DNS_ZONES, HOSTNAMES
    from fairlead.cli.hub_reader import check_kinds, connect_hub
    from fairlead.cli.names_rows import ask_zones, name_rows
    from fairlead.cli.output import VerbAnswer, show
    from fairlead.errors import NotFound
    from fairlead.status.object_ref import ObjectRef

    async def ask() -> VerbAnswer:
        async with connect_hub(api) as cluster:
            await check_kinds(cluster)
            there, zones = await cluster.list(HOSTNAMES), await cluster.list(DNS_ZONES)
        hostnames = [each for each in there if _is_meant(each, name, namespace, selector)]
        if not hostnames and (name or namespace or selector):
            raise NotFound(f"No matching name; there {_listed(there)}")
        rows = name_rows(hostnames, await ask_zones(hostnames, zones))
        bad = [row for row in rows if not row.good]
        code = OK if not bad else ATTENTION if any(row.known_bad for row in bad) else FAILED
        paths = [ObjectRef(HOSTNAMES.kind, row.namespace, row.name).path for row in rows]
        return VerbAnswer({"healthy": not bad, "names": rows}, lambda: _lines(rows), lambda: paths, code)

    return await show(ask, output, watch=watch)


def _is_meant(obj: Hostname, name: str, namespace: str, selector: str) -> bool:
    """Say whether NAME, -n and -l mean a Hostname; -n is its own namespace, or that of its owner."""
    kind, slash, rest = name.partition("/")
    wanted = rest if slash and kind.lower() in ("hostname", "hostnames", "hn") else name
    called = (obj.spec.host, obj.metadata.name, str(obj.key))
    return (
        (not wanted or wanted.lower().rstrip(".") in called)
        and namespace in ("", obj.metadata.namespace, obj.spec.owner.namespace)
        and matcher(selector)(obj.metadata.labels)
    )


def _listed(there: Sequence[Hostname]) -> str:
    hosts = sorted(each.spec.host for each in there)
    return f"are: {listed(hosts, 10)}" if hosts else "are none yet"


def _lines(rows: Sequence[NameRow]) -> list[str]:
    from fairlead.cli.names_rows import HEADER, cells
    from fairlead.status.formatting import columns

    if not rows:
        return [
            "No names yet; they come from Ingresses, Gateways and Services of members, or kubectl apply a Hostname."
        ]
    bad = [f"✗ {row.host}: {row.message}" for row in rows if not row.good]
    return [*columns([HEADER, *map(cells, rows)], indent=""), *bad]
