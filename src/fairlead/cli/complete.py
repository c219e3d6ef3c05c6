"""Completion of objects on the command line: the names of what is at the hub, asked for when TAB is pressed.

In: what was typed so far, and the options before it. Out: KIND/NAME; with a member's kubeconfig the objects that a
member can explain. Never: an error or a wait: a shell that completes
has no place for either, so an API that does not answer at once completes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import typer

from fairlead.status.object_ref import IN_MEMBERS, SERVICE, ObjectRef

if TYPE_CHECKING:
    from fairlead.api.meta import KubeObject, Resource
    from fairlead.kube.cluster import Cluster

T = TypeVar("T", bound="KubeObject")

_PATIENCE_S = 2.0
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")


def complete_object(context: typer.Context, incomplete: str) -> list[str]:
    """Return KIND/NAME of each kind that verbs take; those of another namespace than -n with their namespace."""
    return _starting(incomplete, context, classes=True)


def complete_explained(context: typer.Context, incomplete: str) -> list[str]:
    """Return the same, and what shares a load balancer with others: Ingresses, Gateways and routes."""
    return _starting(incomplete, context, classes=True, sharing=True)


def complete_load_balancer(context: typer.Context, incomplete: str) -> list[str]:
    """Return the same without classes."""
    return _starting(incomplete, context, classes=False)


def complete_http_load_balancer(context: typer.Context, incomplete: str) -> list[str]:
    """Return the HTTPLoadBalancers alone."""
    return [name for name in _starting(incomplete, context, classes=False) if name.startswith("httplb/")]


def complete_hostname(context: typer.Context, incomplete: str) -> list[str]:
    """Return the Hostnames alone."""
    return [name for name in _starting(incomplete, context, classes=False) if name.startswith("hostname/")]


def complete_method(incomplete: str) -> list[str]:
    """Return the methods of HTTP."""
    return [name for name in _METHODS if name.startswith(incomplete.upper())]


def _starting(incomplete: str, context: typer.Context, *, classes: bool, sharing: bool = False) -> list[str]:
    from fairlead.errors import FairleadError

    options = context.params
    where = options.get("kubeconfig"), options.get("context") or ""
    try:
        names = asyncio.run(_names(*where, classes=classes, sharing=sharing))
    except (FairleadError, OSError, TimeoutError):
        return []
    default = options.get("namespace") or "default"
    candidates = {_shortened(name, default) for name in names if name}
    return sorted(name for name in candidates if name.startswith(incomplete))


def _shortened(name: str, namespace: str) -> str:
    """Return KIND/NAMESPACE/NAME without the namespace that is meant without one."""
    kind, _, rest = name.partition("/")
    where, _, plain = rest.partition("/")
    return f"{kind}/{plain}" if where == namespace and plain and "/" not in plain else name


async def _names(kubeconfig: Any, context: str, *, classes: bool, sharing: bool) -> list[str]:
    from fairlead.cli.hub_reader import check_kinds, connect
    from fairlead.errors import NotServed

    async with asyncio.timeout(_PATIENCE_S):
        async with connect(Path(kubeconfig) if kubeconfig else None, context=context, name="the hub") as cluster:
            try:
                named = await check_kinds(cluster)
            except NotServed:
                return await _at_member(cluster) if sharing else []
            from fairlead.api.hostname import HOSTNAMES
            from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, LOAD_BALANCER_ROUTES
            from fairlead.api.loadbalancer import LOAD_BALANCERS
            from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
            from fairlead.cli.selection import member_of

            shared, tcp, http, names = await asyncio.gather(
                _listed(cluster, LOAD_BALANCERS),
                _listed(cluster, TCP_LOAD_BALANCERS),
                _listed(cluster, HTTP_LOAD_BALANCERS),
                _listed(cluster, HOSTNAMES),
            )
            routes = await _listed(cluster, LOAD_BALANCER_ROUTES) if sharing else []
            of_members = [
                (ObjectRef(origin.kind or SERVICE, origin.namespace, origin.name), member_of(route))
                for route in (*tcp, *(http if sharing else ()), *routes)
                if (origin := route.spec.origin).name and origin.kind in {"", *IN_MEMBERS}
            ]
            members: dict[ObjectRef, set[str]] = {}
            for ref, member in of_members:
                members.setdefault(ref, set()).add(member)
            at_hub = [
                *(f"lb/{lb.key}" for lb in shared),
                *(f"tcplb/{lb.key}" for lb in tcp),
                *(f"httplb/{lb.key}" for lb in http),
                *(f"hostname/{name.key}" for name in names),
                # As errors list them: with the member where several have such an object.
                *(ref._replace(member=member if len(members[ref]) > 1 else "").path for ref, member in of_members),
            ]
    return [*at_hub, *(f"class/{name}" for name in named if classes)]


async def _at_member(cluster: Cluster) -> list[str]:
    """Return what a member knows of itself."""
    from fairlead.api.kubernetes import SERVICES
    from fairlead.cli.explain import KINDS_OF_REQUESTS

    kinds = KINDS_OF_REQUESTS
    services = await _listed(cluster, SERVICES)
    others = await asyncio.gather(*(_listed(cluster, kind) for kind in kinds))
    balanced = [service for service in services if service.spec.type == "LoadBalancer"]
    return [
        *(_path(SERVICE, *service.key) for service in balanced),
        *(_path(kind.kind, *obj.key) for kind, there in zip(kinds, others, strict=True) for obj in there),
    ]


def _path(kind: str, namespace: str, name: str) -> str:
    return ObjectRef(kind, namespace, name).path if name else ""


async def _listed(cluster: Cluster, resource: Resource[T]) -> Sequence[T]:
    """List a kind; one that is not served, or not shown to this user, has no names to complete."""
    from fairlead.errors import Forbidden, NotServed

    try:
        return await cluster.list(resource)
    except (Forbidden, NotServed):
        return ()
