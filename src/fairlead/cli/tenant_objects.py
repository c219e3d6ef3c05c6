"""The Tenant of a member at the hub, or those with a near name, and its load balancers.

In: a connection to the hub. Out: load balancers of every kind, also where the hub is too old to know one of them.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fairlead.errors import BadConfiguration
from fairlead.runtime.private_file import readable_by_others, write_private

if TYPE_CHECKING:
    from fairlead.api.intent import IntentObject
    from fairlead.api.meta import Resource
    from fairlead.errors import NotFound
    from fairlead.kube.cluster import Cluster


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
    from fairlead.api.naming import did_you_mean
    from fairlead.api.tenant import TENANTS
    from fairlead.errors import NotFound

    there = sorted(each.metadata.name for each in await cluster.list(TENANTS))
    listed = f"There are: {', '.join(there[:20])}" if there else "There are none"
    hint = did_you_mean(name, there, most=3) or f" {listed}{f' and {len(there) - 20} more' if there[20:] else ''}."
    return NotFound(f"There is no Tenant {name} at {cluster.server}.{hint}", detail=detail)


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
        raise BadConfiguration(f"--output: {directory} does not exist; make it, or name another file")
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
            f"Warning: stdout is a file with mode {status.st_mode & 0o777:04o}, and the key in it can be read by other "
            "users of this machine: chmod 600 it, and the next time use --output FILE.\n"
        )
    return "The key was printed; --output FILE writes it to a file that only you can read.\n"
