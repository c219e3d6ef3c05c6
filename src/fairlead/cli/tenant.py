"""``fairlead tenant``: add, list and remove member clusters, rotate the keys of their agents, and show their limits.

``remove`` shows what would stop, gives permission and watches; the hub does the work. Run again after an interruption,
it continues. A key is a kubeconfig with a service account's token and the hub's certificate authority, in a private
file. Load balancers of every kind are listed, even if the hub is too old to serve one of the kinds.
Never: stops load balancers that serve without ``--stop-serving``.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import yaml

from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import SERVICE_ACCOUNTS
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.meta import JSONObject, Resource, condition_of
from fairlead.api.names import (
    AGENT_LEASE,
    AGENT_SERVICE_ACCOUNT,
    ANNOTATION_ORIGIN,
    ANNOTATION_STOP_SERVING,
    LABEL_DO_NOT_DELETE,
    MANAGER_CLI,
    TENANT_NAMESPACE_PREFIX,
    did_you_mean,
    region_problem,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import ANNOTATION_VERSION, STAMPED_LEASES, TENANTS, StampedLease, Tenant, age_s, state_by_age
from fairlead.api.times import seconds_from_duration
from fairlead.cli.hub_reader import check_kinds, connect_hub, read_hub
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import VerbAnswer, emit, say, show
from fairlead.cli.run import ATTENTION, OK
from fairlead.errors import BadConfiguration, NotFound, NotServed, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import request_token
from fairlead.kube.kubeconfig import SERVICE_ACCOUNT, Kubeconfig
from fairlead.kube.transport import NOTICEABLE_S
from fairlead.model.in_words import counted, listed
from fairlead.runtime.private_file import readable_by_others, write_private
from fairlead.standalone.right_cluster import await_hub, check_has_hub, ensure_place
from fairlead.status.formatting import age_text, columns
from fairlead.translate.tenant import QuotaRow, quota_rows

_POLL_S = 0.5


async def remove_tenant(
    name: str, api: HubApi, output: Output, *, stop: bool, dry_run: bool, ignore_not_found: bool, wait_s: float
) -> None:
    """Remove a Tenant, and print what stopped."""
    in_words = output in (Output.TABLE, Output.WIDE)
    async with connect_hub(api) as cluster:
        await check_kinds(cluster)
        try:
            tenant = await cluster.get(TENANTS, "", name)
        except NotFound as error:
            missing = await no_tenant(cluster, name, detail=error.sentence)
            if not ignore_not_found:
                raise missing from error
            value = {"tenant": name, "namespace": "", "done": "NotFound", "loadBalancers": []}
            emit(output, value, lines=lambda: [missing.sentence], names=tuple)
            return
        objects = await load_balancers_of(cluster, tenant.namespace)
        if in_words:
            say(preview_lines(tenant, objects))
        if dry_run:
            done, last = "Nothing", "Nothing was changed (--dry-run)."
        else:
            refuse_what_must_not_stop(tenant, objects, stop=stop)
            await _delete(cluster, tenant, stop=stop and bool(objects))
            done, last = "Asked", f"The hub removes it; to watch it: fairlead tenant remove {name} --ignore-not-found"
        if not dry_run and wait_s:
            await _watch(cluster, tenant, wait_s, say=say if in_words else lambda _lines: None)
            done = "Removed"
            what = f"load balancers, namespace {tenant.namespace}, rights and key"
            last = f"Tenant {name} is removed: {what}."
    emit(output, value_of(tenant, objects, done), lines=lambda: [last], names=lambda: [f"tenant/{name}"])


def value_of(tenant: Tenant, objects: list[tuple[str, IntentObject]], done: str) -> dict[str, object]:
    """Return what programs get; ``done`` is Removed, Asked (the hub continues with it) or Nothing (--dry-run).

    Of a member that is not there it is NotFound, with --ignore-not-found.
    """
    return {
        "tenant": tenant.metadata.name,
        "namespace": tenant.namespace,
        "done": done,
        "loadBalancers": [
            {
                "kind": kind,
                "namespace": obj.metadata.namespace,
                "name": obj.metadata.name,
                "address": obj.status.address,
            }
            for kind, obj in objects
        ],
    }


def preview_lines(tenant: Tenant, objects: list[tuple[str, IntentObject]]) -> list[str]:
    """Return what would stop."""
    agent = tenant.status.state or "Pending"
    head = f"Tenant {tenant.metadata.name} (namespace {tenant.namespace}, agent {agent})"
    if not objects:
        return [f"{head} serves nothing."]
    rows = [
        (kind, obj.annotation(ANNOTATION_ORIGIN) or str(obj.key), obj.status.address or "<pending>")
        for kind, obj in objects
    ]
    return [f"{head} has {counted(len(objects), 'load balancer')}, which would stop:", *columns(rows)]


def refuse_what_must_not_stop(tenant: Tenant, objects: list[tuple[str, IntentObject]], *, stop: bool) -> None:
    """Raise ``Terminal`` when something may not stop: without permission, or labelled do-not-delete."""
    for kind, obj in objects:
        if LABEL_DO_NOT_DELETE in (obj.metadata.labels or {}):
            raise Terminal(
                f"{kind} {obj.key} has the label {LABEL_DO_NOT_DELETE}, so nothing was changed; take the label away "
                "where it was set, then run this again"
            )
    allowed = stop or tenant.annotation(ANNOTATION_STOP_SERVING, "false") != "false"
    if objects and not allowed:
        raise Terminal(
            f"Tenant {tenant.metadata.name} serves {counted(len(objects), 'load balancer')}, so nothing was changed; "
            "delete its Services in the member first, or drain and stop all of them with --stop-serving"
        )


async def _delete(cluster: Cluster, tenant: Tenant, *, stop: bool) -> None:
    """Give permission and delete; where both was done before, nothing is written."""
    name = tenant.metadata.name
    if stop and not tenant.annotation(ANNOTATION_STOP_SERVING):
        patch = {"metadata": {"uid": tenant.metadata.uid, "annotations": {ANNOTATION_STOP_SERVING: "true"}}}
        await cluster.merge_patch(TENANTS, "", name, patch, manager=MANAGER_CLI)
    if not tenant.deleting:
        await cluster.delete(TENANTS, "", name, uid=tenant.metadata.uid)


async def _watch(cluster: Cluster, tenant: Tenant, wait_s: float, *, say: Callable[[list[str]], None]) -> None:
    """Say what the hub says until the Tenant is gone; raise when that takes too long."""
    loop = asyncio.get_running_loop()
    end_s, said = loop.time() + wait_s, ""
    while True:
        try:
            now = await cluster.get(TENANTS, "", tenant.metadata.name)
        except NotFound:
            return
        if now.metadata.uid != tenant.metadata.uid:
            return
        ready = condition_of(now.status.conditions, "Ready")
        if now.deleting and ready is not None and ready.status == "False" and ready.message != said:
            said = ready.message
            say([said])
        if loop.time() >= end_s:
            hub = await read_hub(cluster)
            why = "" if hub.leading else " No hub leads, so nothing changes; start one with: fairlead hub."
            raise Terminal(
                f"Tenant {tenant.metadata.name} is not removed after {wait_s:g} s; the hub continues, the same command "
                f"watches it again.{why}"
            )
        await asyncio.sleep(_POLL_S)


async def tenant_table(
    name: str, matches: Callable[[Mapping[str, str] | None], bool], api: HubApi, output: Output, *, watch: bool
) -> int:
    """Print the members; return the exit code."""

    async def ask() -> VerbAnswer:
        async with connect_hub(api) as cluster:
            await check_kinds(cluster)
            tenants, leases, served = await asyncio.gather(
                cluster.list(TENANTS),
                cluster.list(STAMPED_LEASES, field_selector=f"metadata.name={AGENT_LEASE}"),
                load_balancers_of(cluster),
            )
            chosen = [
                candidate
                for candidate in tenants
                if matches(candidate.metadata.labels) and name in ("", candidate.metadata.name)
            ]
            if name and not chosen:
                raise await no_tenant(cluster, name)
        by_namespace = {lease.metadata.namespace: lease for lease in leases}
        rows = tenant_rows(chosen, by_namespace, [obj for _, obj in served], now=cluster.server_clock.now())
        return VerbAnswer(
            rows,
            lambda: _lines(rows, of_all=bool(tenants), wide=output is Output.WIDE),
            lambda: (f"tenant/{row.name}" for row in rows),
            lasting=[msgspec.structs.replace(row, heard_s=None, clock_ahead_s=None) for row in rows],
        )

    return await show(ask, output, watch=watch)


def _lines(rows: Sequence[TenantRow], *, of_all: bool, wide: bool) -> list[str]:
    if not rows and of_all:
        return ["No member has these labels; fairlead tenant list without -l shows all of them."]
    if not rows:
        return ["No members yet; add one with: fairlead tenant add NAME --output FILE"]
    return columns([HEADER, *(cells(row, wide=wide) for row in rows)], indent="")


async def rotate_token(name: str, api: HubApi, *, output: Path | None, valid_s: int, server: str) -> None:
    """Revoke all tokens of a Tenant, and write a kubeconfig with a new one."""
    async with connect_hub(api) as cluster:
        await check_kinds(cluster)
        try:
            tenant = await cluster.get(TENANTS, "", name)
        except NotFound as error:
            raise await no_tenant(cluster, name, detail=error.sentence) from error
        trust = cluster_trust(api.kubeconfig, api.context)
        await end_keys(cluster, tenant.namespace)
        access = await issue_access(cluster, name=name, region="", valid_s=valid_s, server=server, trust=trust)
    hand_over(access.kubeconfig, output)
    sys.stderr.write(
        f"All earlier credentials of tenant {name} are revoked; the new one is valid until {access.expires}.\n"
        "Next: replace the file of the agent's --hub-kubeconfig; the agent reads it without a restart.\n"
    )


async def _is_file(path: Path) -> bool:
    return path.exists()  # noqa: ASYNC240 - one look at a local file


async def add_tenant(
    name: str, *, api: HubApi, output: Path | None, region: str, valid_s: int, server: str, new_hub: bool
) -> None:
    """Create a Tenant, and write the kubeconfig of its agent."""
    if api.kubeconfig is not None:
        await await_hub(api.kubeconfig, partial(_is_file, api.kubeconfig), what="the kubeconfig")
    async with connect_hub(api) as cluster:
        await check_has_hub(cluster, new_hub=new_hub, kubeconfig=api.kubeconfig)
        access = await issue_access(
            cluster,
            name=name,
            region=region,
            valid_s=valid_s,
            server=server,
            trust=cluster_trust(api.kubeconfig, api.context),
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


_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_MAX = 63 - len(TENANT_NAMESPACE_PREFIX)
_DAY_S = 86_400
#: No API server issues tokens for less, and more was never allowed here.
_SHORTEST_S, _LONGEST_S = 600, 3650 * _DAY_S


class TenantAccess(msgspec.Struct, frozen=True):
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
    """Return for how many seconds a token is asked for; ``valid_days`` is the earlier form of ``valid_for``.

    Raises:
        BadConfiguration: not a duration, or outside the range that API servers accept.
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
) -> TenantAccess:
    """Create what is missing for the tenant and return a fresh key for its agent; ``trust`` is the hub's authority."""
    tenant = await ensure_place(cluster, name, region=region)
    token = await request_token(cluster, tenant.namespace, AGENT_SERVICE_ACCOUNT, valid_s=valid_s)
    return TenantAccess(
        kubeconfig=_kubeconfig_yaml(name, tenant.namespace, server or cluster.server, trust, token.token),
        namespace=tenant.namespace,
        expires=token.expiration_timestamp,
    )


async def end_keys(cluster: Cluster, namespace: str) -> None:
    """Revoke every token of the tenant's agent: they are bound to the account, which is created again."""
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


def cluster_trust(kubeconfig: Path | None, context: str = "") -> JSONObject:
    """Return the fields of a kubeconfig's ``cluster`` that name the certificate authority; empty for plain HTTP."""
    paths = _paths(kubeconfig)
    if not paths:
        authority = SERVICE_ACCOUNT / "ca.crt"
        return {"certificate-authority-data": _base64(authority.read_bytes())} if authority.is_file() else {}
    chosen = Kubeconfig.read(paths).choose(context)
    fields: JSONObject = {}
    if data := chosen.material().authority:
        fields["certificate-authority-data"] = _base64(data)
    for field in ("tls-server-name", "insecure-skip-tls-verify"):
        if chosen.cluster.get(field):
            fields[field] = chosen.cluster[field]
    return fields


def _paths(kubeconfig: Path | None) -> list[Path]:
    if kubeconfig is not None:
        return [kubeconfig.expanduser()]
    named = [Path(part).expanduser() for part in os.environ.get("KUBECONFIG", "").split(os.pathsep) if part]
    return [path for path in named or [Path.home() / ".kube" / "config"] if path.exists()]


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


#: So many addresses are in a table; -o wide has all.
_ADDRESSES = 3
HEADER = ("NAME", "READY", "STATE", "HEARD", "LOAD BALANCERS", "ADDRESSES", "REGION", "VERSION", "CLOCK")


class TenantRow(msgspec.Struct, frozen=True, rename="camel"):
    """One member: how its agent is, when it was heard, what it has at the hub, and how wrong its clock is (seconds).

    ``heard_s`` and ``clock_ahead_s`` are None while its agent was never heard.
    """

    name: str
    namespace: str
    region: str
    ready: bool
    reason: str
    message: str
    state: str
    heard_s: float | None
    load_balancers: int
    addresses: list[str]
    version: str
    clock_ahead_s: float | None
    deleting: bool


def tenant_rows(
    tenants: Sequence[Tenant],
    leases: Mapping[str, StampedLease],
    load_balancers: Sequence[IntentObject],
    *,
    now: datetime,
) -> list[TenantRow]:
    """Return the rows; ``leases`` are the agents', by namespace, ``now`` the time at the API that stamped them."""
    return [
        _row(tenant, leases.get(tenant.namespace), load_balancers, now)
        for tenant in sorted(tenants, key=lambda tenant: tenant.metadata.name)
    ]


def cells(row: TenantRow, *, wide: bool = False) -> tuple[str, ...]:
    """Return the cells of a row under ``HEADER``; ``wide``: with all addresses, which may be thousands."""
    return (
        row.name,
        "Deleting" if row.deleting else str(row.ready),
        row.state,
        age_text(row.heard_s),
        str(row.load_balancers),
        listed(row.addresses, len(row.addresses) if wide else _ADDRESSES) or "-",
        row.region or "-",
        row.version or "-",
        _clock(row.clock_ahead_s),
    )


def _row(
    tenant: Tenant, lease: StampedLease | None, load_balancers: Sequence[IntentObject], now: datetime
) -> TenantRow:
    silent_s = age_s(lease, now) if lease is not None else None
    mine = [lb for lb in load_balancers if lb.metadata.namespace == tenant.namespace]
    ready = condition_of(tenant.status.conditions, "Ready")
    ahead_s = lease.clock_ahead_s if lease is not None and silent_s is not None else None
    return TenantRow(
        name=tenant.metadata.name,
        namespace=tenant.namespace,
        region=tenant.spec.region,
        ready=ready is not None and ready.status == "True",
        reason=ready.reason if ready is not None else "",
        message=ready.message if ready is not None else "",
        state=state_by_age(silent_s),
        heard_s=None if silent_s is None else round(silent_s, 1),
        load_balancers=len(mine),
        addresses=sorted({address for obj in mine for address in obj.status.addresses}),
        version=lease.annotation(ANNOTATION_VERSION) if lease is not None else "",
        clock_ahead_s=None if ahead_s is None else round(ahead_s, 1) if abs(ahead_s) >= NOTICEABLE_S else 0.0,
        deleting=tenant.deleting,
    )


def _clock(ahead_s: float | None) -> str:
    if ahead_s is None:
        return "-"
    return f"{age_text(abs(ahead_s))} {'ahead' if ahead_s > 0 else 'behind'}" if ahead_s else "ok"


QUOTA_HEADER = ("TENANT", "SUB-TENANT", "RESOURCE", "USED", "LIMIT", "%", "FIELD")


def quota_cells(row: QuotaRow) -> tuple[str, ...]:
    """Return the cells of a row under ``QUOTA_HEADER``; a limit that is nearly used is marked."""
    percent = f"{row.percent}{' !' if row.is_near else ''}" if row.percent is not None else "-"
    return (row.tenant, row.subtenant or "-", row.resource, str(row.used), str(row.limit or "-"), percent, row.field)


async def tenant_quotas(
    name: str, matches: Callable[[Mapping[str, str] | None], bool], api: HubApi, output: Output, *, watch: bool
) -> int:
    """Print what members use of their limits; the exit code is 4 when one is used to 80 percent or more."""

    async def ask() -> VerbAnswer:
        async with connect_hub(api) as cluster:
            await check_kinds(cluster)
            tenants = await cluster.list(TENANTS)
            chosen = [
                tenant
                for tenant in sorted(tenants, key=lambda tenant: tenant.metadata.name)
                if matches(tenant.metadata.labels) and name in ("", tenant.metadata.name)
            ]
            if name and not chosen:
                raise await no_tenant(cluster, name)
        rows = [row for tenant in chosen for row in quota_rows(tenant)]
        table = [QUOTA_HEADER, *map(quota_cells, rows)]
        if not any(row.subtenant for row in rows):
            table = [(cells[0], *cells[2:]) for cells in table]
        uncounted = [tenant.metadata.name for tenant in chosen if tenant.status.used is None]
        return VerbAnswer(
            rows,
            lambda: [
                *(columns(table, indent="") if rows else ()),
                *(
                    f"Tenant {tenant} is not counted yet; check that a hub runs: fairlead status"
                    for tenant in uncounted
                ),
                *(() if chosen else ["No members yet."]),
            ],
            lambda: dict.fromkeys(f"tenant/{row.tenant}" for row in rows),
            ATTENTION if any(row.is_near for row in rows) else OK,
        )

    return await show(ask, output, watch=watch)


async def load_balancers_of(cluster: Cluster, namespace: str = "") -> list[tuple[str, IntentObject]]:
    """Return (kind, object) of every load balancer in a namespace; an empty one means all."""

    async def of(resource: Resource[Any]) -> list[tuple[str, IntentObject]]:
        try:
            return [(resource.kind, obj) for obj in await cluster.list(resource, namespace)]
        except NotServed:
            return []  # a hub of an older version does not have this kind

    lists = await asyncio.gather(*map(of, (TCP_LOAD_BALANCERS, LOAD_BALANCERS, HTTP_LOAD_BALANCERS)))
    return [obj for objects in lists for obj in objects]


async def no_tenant(cluster: Cluster, name: str, *, detail: str = "") -> NotFound:
    """Return the error for a Tenant that there is not, with the name that is near, else with those that there are."""
    there = sorted(tenant.metadata.name for tenant in await cluster.list(TENANTS))
    listed = f"There are: {', '.join(there[:20])}" if there else "There are none"
    hint = did_you_mean(name, there, most=3) or f" {listed}{f' and {len(there) - 20} more' if there[20:] else ''}."
    return NotFound(f"Tenant {name} does not exist at {cluster.server}.{hint}", detail=detail)


def check_output(output: Path | None) -> None:
    """Refuse a file that cannot be written, before anything is done at the hub.

    Raises:
        BadConfiguration: names the path and what is wrong with it.
    """
    if output is None:
        return
    path = output.expanduser()
    if path.is_dir():
        raise BadConfiguration(f"--output: {path} is a directory; name a file in it")
    directory = path.resolve().parent
    if not directory.is_dir():
        raise BadConfiguration(f"--output: {directory} does not exist; create it, or name another file")
    if not os.access(directory, os.W_OK | os.X_OK):
        raise BadConfiguration(f"--output: {directory} cannot be written by this user; name another file")


def hand_over(key: str, output: Path | None) -> None:
    """Write the key to ``output``, else print it."""
    if output is not None:
        path = output.expanduser()
        try:
            write_private(path, key)
        except OSError as error:
            raise BadConfiguration(
                f"--output: {path} cannot be written ({error.strerror}); name another file"
            ) from error
        return
    sys.stdout.write(key)
    sys.stdout.flush()
    sys.stderr.write(stdout_warning())


def stdout_warning() -> str:
    """Return what to say of a key on stdout: who can read it there."""
    try:
        status = os.fstat(sys.stdout.fileno())
    except (OSError, ValueError):  # no real stdout
        status = None
    if status is not None and readable_by_others(status.st_mode):
        return (
            f"Warning: stdout is a file with mode {status.st_mode & 0o777:04o}: other users of this machine can "
            "read the key in it. Run chmod 600 on it; use --output FILE instead.\n"
        )
    return "The key was printed; --output FILE writes it to a file that only you can read.\n"
