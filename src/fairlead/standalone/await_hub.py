"""Waits for a hub that is just being started on this machine.

``fairlead standalone &`` returns at once; its kubeconfig, and then its kinds, are there some seconds later. Its data
directory shows it: a process locks it. In: the path of a kubeconfig, and what has to be true. Out: whether it
became true, within limits. Never: a wait for an API that no process of this machine serves from that directory.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_TENANT, MANAGER_CLI, MANAGER_HUB
from fairlead.api.tenant import TENANTS, Tenant
from fairlead.errors import AlreadyExists, Invalid, NotFound, NotServed, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.kube.preflight import install_crds
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.translate.tenant import tenant_objects

#: How long a hub that starts is waited for, in seconds.
WAIT_S = 30.0
#: How long an API without a hub may have until it shows that it is one.
_HUB_SHOWS_S = 5.0
_EVERY_S = 0.1


def is_locked(directory: Path) -> bool:
    """Return whether a living process of this machine keeps its state in ``directory``."""
    try:
        handle = os.open(directory / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


async def await_hub(
    kubeconfig: Path | None, is_true: Callable[[], Awaitable[bool]], *, what: str, clock: Clock | None = None
) -> bool:
    """Return whether ``is_true`` became true; wait for it only while a hub starts in the directory of ``kubeconfig``.

    ``what`` names what is waited for, in one line on stderr, once the directory shows that it is a hub's.
    """
    if await is_true():
        return True
    if kubeconfig is None or not is_locked(kubeconfig.parent):
        return False
    clock = clock or SystemClock()
    began_s = clock.monotonic()
    announced = False
    while (waited_s := clock.monotonic() - began_s) < WAIT_S:
        if await is_true():
            return True
        is_hub = (kubeconfig.parent / "identity").exists()
        if not is_locked(kubeconfig.parent) or (waited_s > _HUB_SHOWS_S and not is_hub):
            return False
        if is_hub and not announced:
            announced = True
            sys.stderr.write(f"A hub is starting in {kubeconfig.parent}; waiting up to {WAIT_S:.0f} s for {what}.\n")
        await clock.sleep(_EVERY_S)
    return False


async def ensure_place(cluster: Cluster, name: str, *, region: str = "") -> Tenant:
    """Create what is missing for the tenant ``name``; an empty region leaves the one that it has.

    Raises:
        Invalid: its namespace belongs to another Tenant.
        Terminal: the kinds are not there, and cannot be installed.
    """
    tenant = await _ensure_tenant(cluster, name, region)
    await _ensure_objects(cluster, tenant)
    return tenant


async def _ensure_tenant(cluster: Cluster, name: str, region: str) -> Tenant:
    spec: JSONObject = {"region": region} if region else {}
    wanted: JSONObject = {"metadata": {"name": name}, "spec": spec}
    try:
        return await cluster.create(TENANTS, wanted)
    except AlreadyExists:
        pass
    except NotServed:
        # A hub that never ran: the kind itself is missing.
        problems = await install_crds(cluster, all_crds(), MANAGER_HUB)
        if problems:
            raise Terminal(" ".join(problems)) from None
        return await cluster.create(TENANTS, wanted)
    if region:
        return await cluster.apply(TENANTS, wanted, manager=MANAGER_CLI)
    return await cluster.get(TENANTS, "", name)


async def _ensure_objects(cluster: Cluster, tenant: Tenant) -> None:
    namespace = tenant.namespace
    try:
        existing = await cluster.get(NAMESPACES, "", namespace)
    except NotFound:
        existing = None
    if existing is not None and existing.label(LABEL_TENANT) not in ("", tenant.metadata.name):
        raise Invalid(
            f"Namespace {namespace} at the hub belongs to Tenant {existing.label(LABEL_TENANT)}; choose another name"
        )
    for resource, obj in tenant_objects(tenant):
        # The hub's manager: what both write is the same, and must not look like a quarrel between two writers.
        await cluster.apply(resource, obj, manager=MANAGER_HUB)
