"""``fairlead maintenance``: answer the requests of hosts with a page for a time, instead of their routes.

The commands change an annotation of HTTPLoadBalancers at the hub, which survives restarts; the hub ends each entry at
its time. In: a load balancer, a Gateway, or an Ingress, route or Service whose hosts are meant.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from fairlead.api.annotations import exact_network, uncertain_network
from fairlead.api.httploadbalancer import (
    HTTP_LOAD_BALANCERS,
    LOAD_BALANCER_ROUTES,
    HTTPLoadBalancer,
    LoadBalancerRoute,
    maintenance_now,
    maintenance_patch,
)
from fairlead.api.names import MANAGER_CLI
from fairlead.api.times import wire_time
from fairlead.cli.hub_reader import connect_hub
from fairlead.cli.options import HubApi, Output
from fairlead.cli.output import emit
from fairlead.cli.selection import member_of, resolve_one
from fairlead.errors import BadConfiguration, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.model.http import MAX_PAGE_BYTES, Maintenance
from fairlead.status.object_ref import SERVICE, ObjectRef

#: What the annotations of an object may hold together, less what others write there.
_MOST_BYTES = 200_000


_OF_ROUTES = frozenset({"Ingress", "HTTPRoute", "GRPCRoute"})
_EVERY_HOST = ""


def entry_until(
    until: datetime, *, status: int, retry_after_s: int, allow: Iterable[str], page: Path | None
) -> Maintenance:
    """Return what an annotation holds for one host.

    Raises:
        BadConfiguration: the page cannot be read or is too large, or an address range is invalid.
    """
    return Maintenance(
        status=status,
        retry_after_s=retry_after_s,
        allowed_sources=tuple(_network(text) for text in allow),
        page=_read(page) if page is not None else "",
        until=wire_time(until),
    )


def _network(text: str) -> str:
    if problem := uncertain_network([text]):
        raise BadConfiguration(f"--allow: {problem}")
    return str(exact_network(text))


def _read(page: Path) -> str:
    try:
        content = page.read_bytes()
        text = content.decode()
    except OSError as error:
        raise BadConfiguration(f"--page: cannot read {page}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadConfiguration(f"--page: {page} is not text in UTF-8") from error
    if len(content) > MAX_PAGE_BYTES:
        raise BadConfiguration(f"--page: {page} has {len(content)} bytes; at most {MAX_PAGE_BYTES} are allowed")
    return text


async def change_maintenance(
    ref: ObjectRef, hosts: list[str], api: HubApi, output: Output, entry: Maintenance | None
) -> None:
    """End the maintenance of hosts, or begin it with ``entry``; without hosts, of all that ``ref`` means."""
    rows: list[Mapping[str, str]] = []
    async with connect_hub(api, quiet=True) as cluster:
        for load_balancer, meant in (await _meant(cluster, ref, hosts)).items():
            obj = await _load_balancer(cluster, load_balancer)
            now = _entries(obj)
            if entry is None:
                ended = list(now) if _EVERY_HOST in meant and not hosts else [host for host in meant if host in now]
                kept = [each for host, each in now.items() if host not in ended]
                rows += [{"loadBalancer": load_balancer.path, "host": host, "until": ""} for host in ended]
            else:
                kept = [each for host, each in now.items() if host not in meant]
                kept += [msgspec.structs.replace(entry, host=host) for host in meant]
                rows += [{"loadBalancer": load_balancer.path, "host": host, "until": entry.until} for host in meant]
            patch = maintenance_patch(obj, kept)
            size = len(msgspec.json.encode(patch))
            if kept and size > _MOST_BYTES:
                raise BadConfiguration(
                    f"--page: the pages of {obj.metadata.name} would have {size} bytes together; at most "
                    f"{_MOST_BYTES} fit into the object. Use a smaller page or fewer hosts"
                )
            await cluster.merge_patch(HTTP_LOAD_BALANCERS, *obj.key, patch, manager=MANAGER_CLI)
    emit(
        output,
        {"maintenance": rows},
        lines=lambda: [_line(row, ref) for row in rows] or [f"{ref.title} was not in maintenance."],
        names=lambda: dict.fromkeys(row["loadBalancer"] for row in rows),
    )


def _line(row: Mapping[str, str], ref: ObjectRef) -> str:
    what = f"Host {row['host']}" if row["host"] else "Every host"
    if not row["until"]:
        return f"{what} of {row['loadBalancer']} is served by its routes again."
    return (
        f"{what} of {row['loadBalancer']} is in maintenance until {row['until']}. "
        f"To end it earlier: fairlead maintenance off {ref.argument}"
    )


async def _meant(cluster: Cluster, ref: ObjectRef, hosts: list[str]) -> dict[ObjectRef, list[str]]:
    """Return the hosts that are meant, by load balancer; empty: all hosts."""
    names = list(dict.fromkeys(host.lower() for host in hosts))
    if ref.kind not in {*_OF_ROUTES, SERVICE}:
        load_balancer = await resolve_one(cluster, ref)
        if load_balancer.kind != HTTP_LOAD_BALANCERS.kind:
            raise BadConfiguration(f"{load_balancer.title} serves connections, which have no pages")
        return {load_balancer: names or [_EVERY_HOST]}
    routes = [route for route in await cluster.list(LOAD_BALANCER_ROUTES) if route.spec.kind in {"HTTP", "GRPC"}]
    chosen = [route for route in routes if _is_of(route, ref)]
    if not chosen:
        raise NotFound(f"No route of {ref.title} is at the hub; routes of connections have no pages")
    meant: dict[ObjectRef, dict[str, None]] = {}
    for route in chosen:
        at = ObjectRef(HTTP_LOAD_BALANCERS.kind, route.metadata.namespace, route.spec.load_balancer)
        meant.setdefault(at, {}).update(dict.fromkeys(_hosts(route)))
    of_all = set[str]().union(*meant.values())
    if unknown := next((host for host in names if host not in of_all), ""):
        known = ", ".join(host or "*" for host in sorted(of_all))
        raise BadConfiguration(f"--host: {unknown} is not a host of {ref.title}, which has {known}")
    for at, of_routes in meant.items():
        others = [
            route
            for route in routes
            if (route.metadata.namespace, route.spec.load_balancer) == (at.namespace, at.name)
            and not of_routes.keys().isdisjoint(_hosts(route))
            and (
                route not in chosen or (ref.kind == SERVICE and len({each.service for each in route.spec.backends}) > 1)
            )
        ]
        if others and not names:
            title = f"{others[0].spec.origin.kind} {others[0].route.origin}"
            raise BadConfiguration(
                f"{title} shares hosts with {ref.title} and would be in maintenance too; "
                f"name the hosts with --host: {', '.join(host or '*' for host in of_routes)}"
            )
    return {
        at: [host for host in names or of_routes if not names or host in of_routes] for at, of_routes in meant.items()
    }


def _is_of(route: LoadBalancerRoute, ref: ObjectRef) -> bool:
    if ref.member not in ("", member_of(route)):
        return False
    if ref.kind == SERVICE:
        return any(backend.service == f"{ref.namespace}/{ref.name}" for backend in route.spec.backends)
    origin = route.spec.origin
    return (origin.kind, origin.namespace, origin.name) == (ref.kind, ref.namespace, ref.name)


def _hosts(route: LoadBalancerRoute) -> Iterable[str]:
    return (host for attachment in route.spec.attachments for host in attachment.hostnames or (_EVERY_HOST,))


async def _load_balancer(cluster: Cluster, ref: ObjectRef) -> HTTPLoadBalancer:
    try:
        return await cluster.get(HTTP_LOAD_BALANCERS, ref.namespace, ref.name)
    except NotFound as error:
        raise NotFound(ref.not_found, detail=error.sentence) from error


def _entries(obj: HTTPLoadBalancer) -> dict[str, Maintenance]:
    """Return what is in maintenance by host, without what has ended.

    Raises:
        BadConfiguration: the annotation cannot be read, and its entries would be lost.
    """
    try:
        return maintenance_now(obj, datetime.now(UTC))
    except ValueError as error:
        title = f"HTTPLoadBalancer {obj.metadata.namespace}/{obj.metadata.name}"
        raise BadConfiguration(f"{title}: {error}. Correct or remove the annotation first") from error
