"""The objects that a member needs at the hub: a namespace, a service account, and the RBAC of its agent.

The agent may write load balancers and their endpoints in its namespace, renew its own lease and its own token, and
read the classes. ``quota_rows`` says how much of its limits a member uses.
It may not write any status, or see another member.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter

import msgspec

from fairlead.api.kubernetes import NAMESPACES, ROLE_BINDINGS, ROLES, SERVICE_ACCOUNTS
from fairlead.api.meta import AnyResource, JSONObject, KubeObject, Resource
from fairlead.api.names import (
    AGENT_SERVICE_ACCOUNT,
    GROUP,
    LABEL_MANAGED_BY,
    LABEL_TENANT,
    MANAGED_BY,
    SYSTEM_NAMESPACE,
)
from fairlead.api.tenant import DEFAULT_MAX_HOSTNAMES, TENANTS, Tenant
from fairlead.model.condition import Condition, ConditionReason, ConditionType

CLUSTER_ROLES = Resource("rbac.authorization.k8s.io", "v1", "ClusterRole", "clusterroles", False, KubeObject)
CLUSTER_ROLE_BINDINGS = Resource(
    "rbac.authorization.k8s.io", "v1", "ClusterRoleBinding", "clusterrolebindings", False, KubeObject
)
#: The ClusterRole with which agents read classes; one for the whole hub.
READER_ROLE = "fairlead-agent-reader"
#: The hub where it runs in the cluster, and the ClusterRole that it binds in tenants' namespaces (deploy/kubernetes).
HUB_SERVICE_ACCOUNT = "fairlead-hub"
HUB_TENANT_ROLE = "fairlead-hub-tenant"
_RBAC = "rbac.authorization.k8s.io"


def tenant_objects(
    tenant: Tenant, *, leaving: bool = False, hub_binding: bool = False
) -> list[tuple[AnyResource, JSONObject]]:
    """Return everything that must exist for ``tenant``, in the order in which it is applied.

    The namespace belongs to the Tenant object: when the Tenant is gone it is deleted, with all that is in it.
    ``leaving``: the tenant is being removed, and its agent may no longer create load balancers. ``hub_binding``: the
    hub has no right to write there before it has bound its own role.
    """
    name, namespace = tenant.metadata.name, tenant.namespace
    labels = {LABEL_MANAGED_BY: MANAGED_BY, LABEL_TENANT: name}
    owner = msgspec.to_builtins(TENANTS.owner(tenant.metadata))
    subject = {"kind": "ServiceAccount", "name": AGENT_SERVICE_ACCOUNT, "namespace": namespace}
    inside = {"name": AGENT_SERVICE_ACCOUNT, "namespace": namespace, "labels": labels}
    of_hub = {
        "metadata": {"name": HUB_SERVICE_ACCOUNT, "namespace": namespace, "labels": labels},
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": HUB_TENANT_ROLE},
        "subjects": [{"kind": "ServiceAccount", "name": HUB_SERVICE_ACCOUNT, "namespace": SYSTEM_NAMESPACE}],
    }
    return [
        (NAMESPACES, {"metadata": {"name": namespace, "labels": labels, "ownerReferences": [owner]}}),
        *([(ROLE_BINDINGS, of_hub)] if hub_binding else []),
        (SERVICE_ACCOUNTS, {"metadata": inside, "automountServiceAccountToken": False}),
        (ROLES, {"metadata": inside, "rules": agent_rules(leaving=leaving)}),
        (
            ROLE_BINDINGS,
            {
                "metadata": inside,
                "roleRef": {"apiGroup": _RBAC, "kind": "Role", "name": AGENT_SERVICE_ACCOUNT},
                "subjects": [subject],
            },
        ),
        (
            CLUSTER_ROLES,
            {
                "metadata": {"name": READER_ROLE, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
                "rules": [
                    {"apiGroups": [GROUP], "resources": ["loadbalancerclasses"], "verbs": ["get", "list", "watch"]}
                ],
            },
        ),
        (
            CLUSTER_ROLE_BINDINGS,
            {
                "metadata": {"name": f"fairlead-agent-{name}", "labels": labels, "ownerReferences": [owner]},
                "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": READER_ROLE},
                "subjects": [subject],
            },
        ),
    ]


def agent_rules(*, leaving: bool = False) -> list[JSONObject]:
    """Return the RBAC rules of an agent in its namespace at the hub."""
    objects = ["get", "list", "watch", *(() if leaving else ("create", "patch", "delete"))]
    return [
        {
            "apiGroups": [GROUP],
            "resources": [
                "tcploadbalancers",
                "httploadbalancers",
                "loadbalancerroutes",
                "managedcertificates",
                "exportedservices",
            ],
            "verbs": objects,
        },
        # What others of its cluster set export: the hub writes a copy for each member.
        {"apiGroups": [GROUP], "resources": ["importedservices"], "verbs": ["get", "list", "watch"]},
        # The copies of the certificates that its Ingresses name.
        {"apiGroups": [""], "resources": ["secrets"], "verbs": objects},
        # The usage of the tenant, which the hub stores there.
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["list"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": objects},
        {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "patch"]},
        {
            "apiGroups": [""],
            "resources": ["serviceaccounts/token"],
            "resourceNames": [AGENT_SERVICE_ACCOUNT],
            "verbs": ["create"],
        },
    ]


#: From this part of a limit on, it is nearly used.
_NEAR_PERCENT = 80


class QuotaRow(msgspec.Struct, frozen=True, rename="camel"):
    """How much of one limit a member uses; ``limit`` is None where there is none, and ``field`` sets it."""

    tenant: str
    resource: str
    used: int
    limit: int | None
    percent: int | None
    field: str
    #: Empty for the whole member.
    subtenant: str = ""

    @property
    def is_near(self) -> bool:
        """Return whether the limit is nearly used, or exceeded."""
        return self.percent is not None and self.percent >= _NEAR_PERCENT


def quota_rows(tenant: Tenant) -> list[QuotaRow]:
    """Return what a member uses, and its limits; none before the hub has counted."""
    spec, used = tenant.spec, tenant.status.used
    if used is None:
        return []
    rows = (
        ("load balancers", used.load_balancers, spec.max_load_balancers, "spec.maxLoadBalancers"),
        ("ports", used.ports, spec.max_ports, "spec.maxPorts, or --tenant-ports of the hub"),
        ("targets", used.targets, spec.max_targets, "spec.maxTargets"),
        ("routes", used.routes, spec.max_routes, "spec.maxRoutes"),
        ("certificates", used.certificates, spec.max_certificates, "spec.maxCertificates"),
        ("host names", used.hostnames, spec.max_hostnames or DEFAULT_MAX_HOSTNAMES, "spec.maxHostnames"),
        ("addresses", used.addresses, 0, "spec.maxPerTenant of each AddressPool"),
    )
    of_classes = (
        (f"load balancers of class {entry.name}", entry.load_balancers, entry.limit, "spec.maxPerTenant of the class")
        for entry in used.classes or ()
    )
    return [_row(tenant, *row) for row in (*rows, *of_classes)] + [
        _row(tenant, resource, count, limit, f"spec.subtenants[{limits.name}].{field}", entry.name)
        for entry in used.subtenants or ()
        for limits in (tenant.limits_of(entry.name),)
        for resource, count, limit, field in (
            ("load balancers", entry.load_balancers, limits.max_load_balancers, "maxLoadBalancers"),
            ("ports", entry.ports, limits.max_ports, "maxPorts"),
            ("targets", entry.targets, limits.max_targets, "maxTargets"),
            ("routes", entry.routes, limits.max_routes, "maxRoutes"),
            ("certificates", entry.certificates, limits.max_certificates, "maxCertificates"),
            ("host names", entry.hostnames, limits.max_hostnames, "maxHostnames"),
        )
        if limit
    ]


def _row(tenant: Tenant, resource: str, used: int, limit: int, field: str, subtenant: str = "") -> QuotaRow:
    percent = round(100 * used / limit) if limit else None
    return QuotaRow(tenant.metadata.name, resource, used, limit or None, percent, field, subtenant)


def has_limits(tenant: Tenant) -> bool:
    """Return whether a Tenant sets a limit of its own, or a class of its load balancers does."""
    spec, used = tenant.spec, tenant.status.used
    return any(
        (
            spec.max_load_balancers,
            spec.max_ports,
            spec.max_targets,
            spec.max_routes,
            spec.max_certificates,
            spec.max_hostnames,
            spec.subtenants,
            used is not None and used.classes,
        )
    )


def domain_holders(tenants: Iterable[Tenant]) -> dict[str, Tenant]:
    """Return the holder of each domain that a Tenant names, or names are made in, or were."""
    holders: dict[str, Tenant] = {}
    ordered = sorted((tenant for tenant in tenants if not tenant.refused), key=attrgetter("age_order"))
    for tenant in ordered:
        for domain in domains_of(tenant):
            holders.setdefault(domain, tenant)
    for tenant in ordered:
        for domain in tenant.name_domains[1:]:
            holders.setdefault(domain, tenant)
    return holders


def domains_of(tenant: Tenant | None) -> frozenset[str]:
    """Return the domains that a Tenant names, and the one that its names are made in; none for one that is refused."""
    if tenant is None or tenant.refused:
        return frozenset()
    return frozenset({*tenant.spec.domains, tenant.status.domain} - {""})


def held_domains(tenant: Tenant | None) -> frozenset[str]:
    """Return the same, with the former domains whose names are kept."""
    if tenant is None or tenant.refused:
        return frozenset()
    return domains_of(tenant) | frozenset(tenant.name_domains[1:])


def build_domains_taken(tenant: Tenant, tenants: Iterable[Tenant]) -> Condition | None:
    """Return the condition of a Tenant with a domain that an older one has, None when there is none."""
    holders = domain_holders(holder for holder in tenants if not holder.deleting)
    fields = [("spec.domain", tenant.status.domain)] if tenant.status.domain else []
    fields += [("spec.domains", domain) for domain in sorted(tenant.spec.domains)]
    for field, domain in fields:
        holder = holders.get(domain, tenant).metadata.name
        if holder != tenant.metadata.name:
            text = (
                f"{field}: {domain} belongs to Tenant {holder}, which is older, and no other member gets names in it; "
                "remove it from one of the two"
            )
            return Condition(ConditionType.HOSTNAMES_ACCEPTED, False, ConditionReason.DOMAIN_RESERVED, text)
    return None
