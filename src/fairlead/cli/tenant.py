"""``fairlead tenant``: adds member clusters to the hub, with a kubeconfig for each agent."""

from __future__ import annotations

import re
import sys
from functools import partial
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import msgspec
import typer
import yaml

from fairlead.api.kubernetes import SERVICE_ACCOUNTS
from fairlead.api.meta import JSONObject
from fairlead.api.names import AGENT_SERVICE_ACCOUNT, TENANT_NAMESPACE_PREFIX
from fairlead.api.naming import region_problem
from fairlead.api.times import seconds_from_duration
from fairlead.cli.exit_codes import epilog_of
from fairlead.cli.help_types import PlainCommand, PlainGroup
from fairlead.cli.options import Context, HubAddress, KeyFile, Kubeconfig, ValidDays, ValidFor, Verbose
from fairlead.cli.run import run_async
from fairlead.cli.tenant_list import list_tenants
from fairlead.cli.tenant_remove import remove
from fairlead.errors import BadConfiguration
from fairlead.kube.cluster import Cluster
from fairlead.kube.service_account_token import request_token
from fairlead.standalone.await_hub import ensure_place


def rotate(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member.", show_default=False)],
    output: KeyFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    valid_for: ValidFor = "24h",
    valid_days: ValidDays = None,
    server: HubAddress = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Revoke all tokens of a tenant, and write a kubeconfig with a new one.

    What is served goes on. An agent that finds the new key in its --hub-kubeconfig goes on without a restart.
    """
    from fairlead.cli.tenant import check_server, validity_s
    from fairlead.cli.tenant_objects import check_output

    check_server(server)
    check_output(output)
    valid_s = validity_s(valid_for, valid_days)
    run_async(
        lambda: _rotate(
            name.removeprefix("tenant/"), kubeconfig, context, output=output, valid_s=valid_s, server=server
        )
    )


async def _rotate(
    name: str, kubeconfig: Path | None, context: str, *, output: Path | None, valid_s: int, server: str
) -> None:
    from fairlead.api.tenant import TENANTS
    from fairlead.cli.authority import cluster_trust
    from fairlead.cli.connect import check_kinds, connect
    from fairlead.cli.tenant import end_keys, issue_access
    from fairlead.cli.tenant_objects import hand_over, no_tenant
    from fairlead.errors import NotFound

    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        await check_kinds(cluster)
        try:
            tenant = await cluster.get(TENANTS, "", name)
        except NotFound as error:
            raise await no_tenant(cluster, name, detail=error.sentence) from error
        trust = cluster_trust(kubeconfig, context)
        await end_keys(cluster, tenant.namespace)
        access = await issue_access(cluster, name=name, region="", valid_s=valid_s, server=server, trust=trust)
    hand_over(access.kubeconfig, output)
    sys.stderr.write(
        f"Every earlier key of tenant {name} has ended; the new one is valid until {access.expires}.\n"
        "Next: put it where the agent's --hub-kubeconfig is; the agent reads it by itself.\n"
    )


app = typer.Typer(cls=PlainGroup, no_args_is_help=True, help="Member clusters at the hub.")


@app.callback()
def tenant() -> None:
    """Member clusters at the hub."""


@app.command("add", cls=PlainCommand, epilog=epilog_of("tenant add"))
def add(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the member, such as east.", show_default=False)],
    output: KeyFile = None,
    kubeconfig: Kubeconfig = None,
    context: Context = "",
    region: Annotated[
        str, typer.Option("--region", metavar="NAME", help="Region of the member, such as eu-central.")
    ] = "",
    valid_for: ValidFor = "24h",
    valid_days: ValidDays = None,
    server: HubAddress = "",
    new_hub: Annotated[
        bool, typer.Option("--new-hub", help="No hub has run there yet: install the kinds, and go on.")
    ] = False,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Create a Tenant and write a kubeconfig for its agent, which can reach that tenant's namespace only.

    Safe to repeat: nothing changes for an existing Tenant, and a fresh token is written.
    """
    from fairlead.cli.tenant import check_name, check_server, validity_s
    from fairlead.cli.tenant_objects import check_output

    check_name(name, region)
    check_server(server)
    check_output(output)
    valid_s = validity_s(valid_for, valid_days)
    run_async(
        lambda: _add(
            name,
            kubeconfig=kubeconfig,
            context=context,
            output=output,
            region=region,
            valid_s=valid_s,
            server=server,
            new_hub=new_hub,
        )
    )


async def _is_file(path: Path) -> bool:
    return path.exists()  # noqa: ASYNC240 - one look at a local file


async def _add(
    name: str,
    *,
    kubeconfig: Path | None,
    context: str,
    output: Path | None,
    region: str,
    valid_s: int,
    server: str,
    new_hub: bool,
) -> None:
    from fairlead.cli.authority import cluster_trust
    from fairlead.cli.connect import connect
    from fairlead.cli.tenant import issue_access
    from fairlead.cli.tenant_objects import hand_over
    from fairlead.standalone.await_hub import await_hub
    from fairlead.standalone.right_cluster import check_has_hub

    if kubeconfig is not None:
        await await_hub(kubeconfig, partial(_is_file, kubeconfig), what="its kubeconfig")
    async with connect(kubeconfig, context=context, name="the hub") as cluster:
        await check_has_hub(cluster, new_hub=new_hub, kubeconfig=kubeconfig)
        access = await issue_access(
            cluster,
            name=name,
            region=region,
            valid_s=valid_s,
            server=server,
            trust=cluster_trust(kubeconfig, context),
        )
    hand_over(access.kubeconfig, output)
    file = str(output) if output is not None else f"{name}-at-hub.kubeconfig"
    save = "" if output is not None else f"save the key as {file}, then "
    sys.stderr.write(
        f"Tenant {name} has namespace {access.namespace} at {server or cluster.server}; "
        f"the token is valid until {access.expires}; the agent renews it.\n"
        f"Next: {save}run the agent of that member:\n"
        f"  fairlead agent --kubeconfig MEMBER.kubeconfig --hub-kubeconfig {file} --tenant {name}\n"
    )


app.command("list", cls=PlainCommand, epilog=epilog_of("tenant list"))(list_tenants)
app.command("rotate", cls=PlainCommand, epilog=epilog_of("tenant rotate"))(rotate)
app.command("remove", cls=PlainCommand, epilog=epilog_of("tenant remove"))(remove)


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_MAX = 63 - len(TENANT_NAMESPACE_PREFIX)
_DAY_S = 86_400
#: No API server issues tokens for less, and more was never allowed here.
_SHORTEST_S, _LONGEST_S = 600, 3650 * _DAY_S


class Access(msgspec.Struct, frozen=True):
    """A kubeconfig (YAML), the namespace it is for, and until when its token is valid (RFC 3339)."""

    kubeconfig: str
    namespace: str
    expires: str


def check_name(name: str, region: str) -> None:
    """Refuse names that Kubernetes would refuse, before anything is created."""
    if not _LABEL.fullmatch(name) or len(name) > _NAME_MAX:
        raise BadConfiguration(
            f"NAME: {name!r} cannot name a tenant; use lower-case letters, digits and dashes, at most {_NAME_MAX}"
        )
    if region and (problem := region_problem(region)):
        raise BadConfiguration(problem)


def check_server(server: str) -> None:
    """Refuse what no agent could ever reach."""
    parts = urlsplit(server)
    if server and (parts.scheme not in ("https", "http") or not parts.hostname):
        raise BadConfiguration(f"--server: {server!r} is not a URL such as https://hub.example.com:6443")


def validity_s(valid_for: str, valid_days: int | None) -> int:
    """Return for how many seconds a token is asked for; ``valid_days`` is how it was said before ``valid_for``.

    Raises:
        BadConfiguration: it is no duration, or none that an API server admits.
    """
    if valid_days is not None:
        sys.stderr.write(f"Warning: --valid-days is the earlier name; use --valid-for {valid_days * 24}h.\n")
        return valid_days * _DAY_S
    try:
        seconds = int(seconds_from_duration(valid_for.strip()))
    except ValueError as error:
        raise BadConfiguration(f"--valid-for: {valid_for!r} is not a duration such as 24h or 90m") from error
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise BadConfiguration(f"--valid-for: {valid_for!r} is not between 10m and {_LONGEST_S // 3600}h")
    return seconds


async def issue_access(
    cluster: Cluster, *, name: str, region: str, valid_s: int, server: str, trust: JSONObject
) -> Access:
    """Create what is missing for the tenant and return a fresh key for its agent; ``trust`` is the hub's authority."""
    tenant = await ensure_place(cluster, name, region=region)
    token = await request_token(cluster, tenant.namespace, AGENT_SERVICE_ACCOUNT, valid_s=valid_s)
    return Access(
        kubeconfig=_kubeconfig_yaml(name, tenant.namespace, server or cluster.server, trust, token.token),
        namespace=tenant.namespace,
        expires=token.expiration_timestamp,
    )


async def end_keys(cluster: Cluster, namespace: str) -> None:
    """End every token of the tenant's agent: they are bound to the account, which is made anew."""
    await cluster.delete(SERVICE_ACCOUNTS, namespace, AGENT_SERVICE_ACCOUNT)


def _kubeconfig_yaml(tenant: str, namespace: str, server: str, trust: JSONObject, token: str) -> str:
    document: JSONObject = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "hub", "cluster": {"server": server, **trust}}],
        "users": [{"name": tenant, "user": {"token": token}}],
        "contexts": [{"name": tenant, "context": {"cluster": "hub", "user": tenant, "namespace": namespace}}],
        "current-context": tenant,
    }
    return yaml.safe_dump(document, sort_keys=False, width=10_000)
