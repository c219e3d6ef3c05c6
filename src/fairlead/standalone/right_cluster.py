"""Checks that each kubeconfig is for the intended cluster before anything is written, and the place of a tenant there.

    agent       the two kubeconfigs may be swapped, or both be for one side
    hub         the kubeconfig may be that of a member
    tenant add  the kubeconfig may be that of a member, or of a hub that is just starting on this machine
    run         the cluster may be the member of another hub

``fairlead standalone &`` returns at once; its kubeconfig and its kinds follow some seconds later, and the lock of its
data directory shows that they will. In: open clusters, the path of a kubeconfig, names of flags. Out: nothing, or an
error that names the flag and the next step; a Tenant with its namespace and rights.
Never: a write by a check, or a guess: a server that does not answer is not rejected for that. Never waits for an API
that no process of this machine serves from that directory.
"""

from __future__ import annotations

import fcntl
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import LEASES, NAMESPACES
from fairlead.api.meta import JSONObject
from fairlead.api.names import (
    AGENT_LEADER_LEASE,
    AGENT_SERVICE_ACCOUNT,
    API_VERSION,
    GROUP,
    HUB_LEASE,
    LABEL_TENANT,
    MANAGER_CLI,
    MANAGER_HUB,
    SYSTEM_NAMESPACE,
    TENANT_NAMESPACE_PREFIX,
    VERSION,
)
from fairlead.api.tenant import TENANTS, Tenant
from fairlead.errors import AlreadyExists, BadConfiguration, Forbidden, Invalid, NotFound, NotServed, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import user_name
from fairlead.kube.discovery import install_crds, served_kinds
from fairlead.runtime.clock import Clock, SystemClock
from fairlead.translate.tenant import tenant_objects

#: The tenant of a cluster that is its own hub.
OWN_TENANT = "local"
_ACCOUNT = "system:serviceaccount:"


async def tenant_of(cluster: Cluster) -> str:
    """Return the tenant whose key this kubeconfig has, empty when it is another's, or its server does not say."""
    try:
        user = await user_name(cluster)
    except (NotServed, Forbidden, Invalid):
        return ""  # a server before Kubernetes 1.28, or one that does not let its users ask
    namespace, _, name = user.removeprefix(_ACCOUNT).partition(":")
    named = user.startswith(_ACCOUNT) and name == AGENT_SERVICE_ACCOUNT
    return namespace.removeprefix(TENANT_NAMESPACE_PREFIX) if named and _is_tenants(namespace) else ""


async def serves_kinds(cluster: Cluster) -> bool:
    """Return whether our kinds are installed there."""
    return bool(await served_kinds(cluster, GROUP, VERSION))


async def hub_has_run(cluster: Cluster) -> bool:
    """Return whether a hub has ever led there."""
    return await serves_kinds(cluster) and await _has_hub_lease(cluster)


async def _has_hub_lease(cluster: Cluster) -> bool:
    return any(lease.metadata.name.startswith(HUB_LEASE) for lease in await cluster.list(LEASES, SYSTEM_NAMESPACE))


async def check_agent_sides(member: Cluster, hub: Cluster, *, tenant: str) -> None:
    """Refuse an agent whose kubeconfigs are swapped, are both for one side, or are for another tenant.

    Raises:
        BadConfiguration: names the flag, the server behind it and what to give instead.
    """
    is_hub = await serves_kinds(hub)
    if key_of := await tenant_of(member):
        swapped = "" if is_hub else " The two seem to be swapped: exchange --kubeconfig and --hub-kubeconfig."
        raise BadConfiguration(
            f"--kubeconfig: {member.server} is the hub, and the kubeconfig is the key of tenant {key_of} there. "
            f"An agent needs the kubeconfig of the member itself.{swapped} Nothing was written"
        )
    if not is_hub:
        raise BadConfiguration(
            f"--hub-kubeconfig: {hub.server} is not a hub, it does not serve {API_VERSION}; give the file that "
            f"`fairlead tenant add {tenant} --output FILE` has written. Nothing was written"
        )
    key_of = await tenant_of(hub)
    if key_of and key_of != tenant and hub.namespace == TENANT_NAMESPACE_PREFIX + key_of:
        raise BadConfiguration(
            f"--hub-kubeconfig is the key of tenant {key_of}, and --tenant is {tenant}. "
            f"Give the file that `fairlead tenant add {tenant} --output FILE` has written, or --tenant {key_of}"
        )


async def check_hub_side(cluster: Cluster, *, new_hub: bool) -> None:
    """Refuse a hub that was given a tenant's key, or a member of another hub.

    Raises:
        BadConfiguration: names the flag, the server behind it and what to give instead.
    """
    await refuse_tenants_key(cluster)
    if new_hub or await serves_kinds(cluster):
        return
    if where := await _agent_lease(cluster):
        raise BadConfiguration(
            f"--kubeconfig: {cluster.server} is a member: an agent of another hub works there (Lease {where}), and no "
            "hub has run there. Give the kubeconfig of the hub. To make this cluster a hub as well: --new-hub. "
            "Nothing was written"
        )


async def check_own_member(cluster: Cluster) -> None:
    """Refuse a cluster that is the member of another hub: two agents of one cluster would wait for one Lease.

    Raises:
        BadConfiguration: names the flag, the server behind it and what to do instead.
    """
    await refuse_tenants_key(cluster)
    if await has_own_tenant(cluster):
        return
    if where := await _agent_lease(cluster):
        raise BadConfiguration(
            f"--kubeconfig: {cluster.server} is a member, an agent of another hub works there, or has worked there "
            f"(Lease {where}). Its Services get their addresses from that hub. To serve it from this machine in place "
            "of that: end the agent, delete the Lease, and run this again. Nothing was written"
        )


async def check_has_hub(cluster: Cluster, *, new_hub: bool, kubeconfig: Path | None = None) -> None:
    """Refuse an API where no hub has ever run; one that is starting in the directory of ``kubeconfig`` is waited for.

    Raises:
        BadConfiguration: names the flag, the server behind it and what to give instead.
    """
    await refuse_tenants_key(cluster)
    member = not new_hub and not await serves_kinds(cluster) and await _agent_lease(cluster)
    if new_hub or (not member and await await_hub(kubeconfig, lambda: hub_has_run(cluster), what="the kinds")):
        return
    raise BadConfiguration(
        f"--kubeconfig: {await not_a_hub(cluster)}. To prepare a cluster whose hub starts later, use --new-hub. "
        "Nothing was written"
    )


async def not_a_hub(cluster: Cluster) -> str:
    """Return why a cluster without our kinds cannot answer for a hub, and what to give instead."""
    server = f"{cluster.server} ({cluster.config.source or 'as configured'})"
    if not await serves_kinds(cluster) and await _has_hub_lease(cluster):
        return f"the kinds of the hub at {server} were deleted: fairlead crds | kubectl apply --server-side -f -"
    if where := await _agent_lease(cluster):
        fault = f"{server} is a member, an agent works there (Lease {where}), and no hub has run there"
    else:
        fault = f"no hub has run at {server}, which may be a member"
    return f"{fault}. Name the kubeconfig of the hub, or a context with --context"


async def refuse_tenants_key(cluster: Cluster) -> None:
    """Refuse the key of an agent where an administrator's kubeconfig is needed.

    Raises:
        BadConfiguration: says whose key it is, and what to give instead.
    """
    if key_of := await tenant_of(cluster):
        raise BadConfiguration(
            f"--kubeconfig: this is the key of tenant {key_of}, which only its agent can use; "
            f"give an administrator's kubeconfig of the hub {cluster.server}"
        )


async def _agent_lease(cluster: Cluster) -> str:
    """Return which Lease shows that an agent of this cluster works, or has worked, empty without one."""
    for namespace in (SYSTEM_NAMESPACE, "kube-system"):
        try:
            await cluster.get(LEASES, namespace, AGENT_LEADER_LEASE)
        except (NotFound, Forbidden):
            continue
        return f"{namespace}/{AGENT_LEADER_LEASE}"
    return ""


async def has_own_tenant(cluster: Cluster) -> bool:
    """Return whether the hub of this cluster has it as its own member, as ``fairlead run`` does."""
    try:
        await cluster.get(TENANTS, "", OWN_TENANT)
    except (NotFound, NotServed):
        return False
    return True


def _is_tenants(namespace: str) -> bool:
    return namespace.startswith(TENANT_NAMESPACE_PREFIX)


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
