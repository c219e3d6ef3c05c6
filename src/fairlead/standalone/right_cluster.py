"""Checks that each kubeconfig is for the intended cluster, before anything is written there.

    agent       its two may be swapped, or both be for one side
    hub         it may have been given a member
    tenant add  it may have been given a member, where nothing of ours belongs
    run         its cluster may be the member of another hub

In: open clusters and the names of the flags. Out: nothing, or an error that names the flag and the next step.
Never: a write, and never a guess: what a server does not answer is no reason to refuse it.
"""

from __future__ import annotations

from pathlib import Path

from fairlead.api.kubernetes import LEASES
from fairlead.api.names import (
    AGENT_LEADER_LEASE,
    AGENT_SERVICE_ACCOUNT,
    API_VERSION,
    GROUP,
    HUB_LEASE,
    SYSTEM_NAMESPACE,
    TENANT_NAMESPACE_PREFIX,
    VERSION,
)
from fairlead.api.tenant import TENANTS
from fairlead.errors import BadConfiguration, Forbidden, Invalid, NotFound, NotServed
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import served_kinds
from fairlead.kube.signed_in import user_name
from fairlead.standalone.await_hub import await_hub

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
    if not await serves_kinds(cluster):
        return False
    return any(lease.metadata.name.startswith(HUB_LEASE) for lease in await cluster.list(LEASES, SYSTEM_NAMESPACE))


async def check_agent_sides(member: Cluster, hub: Cluster, *, tenant: str) -> None:
    """Refuse an agent whose kubeconfigs are swapped, are both for one side, or are for another tenant.

    Raises:
        BadConfiguration: names the flag, the server behind it and what to give instead.
    """
    is_hub = await serves_kinds(hub)
    if key_of := await tenant_of(member):
        swapped = "" if is_hub else " It seems that the two are swapped: exchange --kubeconfig and --hub-kubeconfig."
        raise BadConfiguration(
            f"--kubeconfig: {member.server} is the hub, and the kubeconfig is the key of tenant {key_of} there; "
            f"an agent needs the kubeconfig of the member itself.{swapped} Nothing was written"
        )
    if not is_hub:
        raise BadConfiguration(
            f"--hub-kubeconfig: {hub.server} is not a hub, it does not serve {API_VERSION}; give the file that "
            f"`fairlead tenant add {tenant} --output FILE` has written. Nothing was written"
        )
    key_of = await tenant_of(hub)
    if key_of and key_of != tenant and hub.namespace == TENANT_NAMESPACE_PREFIX + key_of:
        raise BadConfiguration(
            f"--hub-kubeconfig is the key of tenant {key_of}, and --tenant is {tenant}; "
            f"give the file that `fairlead tenant add {tenant} --output FILE` has written, or --tenant {key_of}"
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
            f"--kubeconfig: {cluster.server} is a member, an agent of another hub works there (Lease {where}), and no "
            "hub has run there; give the kubeconfig of the hub. To make this cluster a hub as well: --new-hub. "
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
    """Refuse an API where no hub has ever run; one that is being started beside ``kubeconfig`` is waited for.

    Raises:
        BadConfiguration: names the flag, the server behind it and what to give instead.
    """
    await refuse_tenants_key(cluster)
    if not new_hub and not await serves_kinds(cluster) and (where := await _agent_lease(cluster)):
        raise BadConfiguration(
            f"--kubeconfig: {cluster.server} ({cluster.config.source or 'as configured'}) is a member, an agent works "
            f"there (Lease {where}), and no hub has run there. Name the kubeconfig of the hub, or a context with "
            "--context. To prepare a cluster whose hub starts later, use --new-hub. Nothing was written"
        )
    if new_hub or await await_hub(kubeconfig, lambda: hub_has_run(cluster), what="its kinds"):
        return
    raise BadConfiguration(
        f"--kubeconfig: no hub has run at {cluster.server} ({cluster.config.source or 'as configured'}), is it a "
        "member? Name the kubeconfig of the hub, or a context with --context. To prepare a cluster whose hub starts "
        "later, use --new-hub. Nothing was written"
    )


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
