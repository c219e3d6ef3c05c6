"""The objects behind ``fairlead tenant``: the rows of members, and the access of an agent to the hub.

In: a connection to the hub, names and options. Out: rows ordered by name; a kubeconfig with a service account's token
and the hub's certificate authority, written to a private file. Load balancers of every kind are listed, even if the hub
is too old to serve one of the kinds.
"""

from __future__ import annotations

import asyncio
import base64
import os
import re
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec
import yaml

from fairlead.api.intent import IntentObject
from fairlead.api.kubernetes import SERVICE_ACCOUNTS
from fairlead.api.meta import JSONObject, condition_of
from fairlead.api.names import AGENT_SERVICE_ACCOUNT, TENANT_NAMESPACE_PREFIX, region_problem
from fairlead.api.tenant import ANNOTATION_VERSION, StampedLease, Tenant, age_s, state_by_age
from fairlead.api.times import seconds_from_duration
from fairlead.errors import BadConfiguration
from fairlead.kube.cluster import Cluster
from fairlead.kube.kubeconfig import SERVICE_ACCOUNT, Kubeconfig
from fairlead.kube.service_account_token import request_token
from fairlead.kube.transport import NOTICEABLE_S
from fairlead.model.in_words import listed
from fairlead.runtime.private_file import readable_by_others, write_private
from fairlead.standalone.right_cluster import ensure_place
from fairlead.status.formatting import age_text

if TYPE_CHECKING:
    from fairlead.api.meta import Resource
    from fairlead.errors import NotFound


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
        addresses=sorted({address for each in mine for address in each.status.addresses}),
        version=lease.annotation(ANNOTATION_VERSION) if lease is not None else "",
        clock_ahead_s=None if ahead_s is None else round(ahead_s, 1) if abs(ahead_s) >= NOTICEABLE_S else 0.0,
        deleting=tenant.deleting,
    )


def _clock(ahead_s: float | None) -> str:
    if ahead_s is None:
        return "-"
    return f"{age_text(abs(ahead_s))} {'ahead' if ahead_s > 0 else 'behind'}" if ahead_s else "ok"


async def load_balancers_of(cluster: Cluster, namespace: str = "") -> list[tuple[str, IntentObject]]:
    """Return (kind, object) of every load balancer in a namespace; an empty one means all."""
    from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
    from fairlead.api.loadbalancer import LOAD_BALANCERS
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
    from fairlead.errors import NotServed

    async def of(resource: Resource[Any]) -> list[tuple[str, IntentObject]]:
        try:
            return [(resource.kind, each) for each in await cluster.list(resource, namespace)]
        except NotServed:
            return []  # a hub of an older version does not have this kind

    lists = await asyncio.gather(*map(of, (TCP_LOAD_BALANCERS, LOAD_BALANCERS, HTTP_LOAD_BALANCERS)))
    return [each for objects in lists for each in objects]


async def no_tenant(cluster: Cluster, name: str, *, detail: str = "") -> NotFound:
    """Return the error for a Tenant that there is not, with the name that is near, else with those that there are."""
    from fairlead.api.names import did_you_mean
    from fairlead.api.tenant import TENANTS
    from fairlead.errors import NotFound

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
