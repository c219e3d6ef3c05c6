"""The place of a member at the hub: its Tenant, and the objects that its agent works with.

The objects are those that the hub itself makes (``translate/tenant.py``), so it does not matter who comes first.
In: an administrator's connection to the hub. Out: the Tenant. Never: changes a Tenant that is there, but its region.
"""

from __future__ import annotations

from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import NAMESPACES
from fairlead.api.meta import JSONObject
from fairlead.api.names import LABEL_TENANT, MANAGER_CLI, MANAGER_HUB
from fairlead.api.tenant import TENANTS, Tenant
from fairlead.errors import AlreadyExists, Invalid, NotFound, NotServed, Terminal
from fairlead.kube.cluster import Cluster
from fairlead.kube.preflight import install_crds
from fairlead.translate.tenant import tenant_objects


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
