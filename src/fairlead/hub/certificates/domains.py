"""The certificates for names that the hub makes: one for the star of each member's domain, by DNS01.

    wanted      the domain is this member's, and an Ingress or Gateway is of a LoadBalancerClass that names an issuer
    asked for   a DNSZone holds the domain; the issuer proves names by DNS01, and is for this member and this domain
    not wanted  what was asked for is withdrawn, with its Secret; never while something cannot be read

One that is wanted and cannot be asked for any more, since its issuer or zone has gone, is served on.

In: Tenants, HTTPLoadBalancers, classes, issuers, zones. Out: ManagedCertificates, which are ordered like any other.
Of several hubs over one API the one that serves all regions asks. Never: a certificate for a name of a user.
"""

from __future__ import annotations

from contextlib import suppress

from fairlead.api.hostname import DNS_ZONES, WILDCARD, DNSZone, is_within
from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS, HTTPLoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.managedcertificate import MANAGED_CERTIFICATES
from fairlead.api.meta import JSONObject, KubeObject, only_status_changed
from fairlead.api.names import (
    ANNOTATION_CERTIFICATE_ISSUER,
    DEFAULT_CLASS,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    MANAGER_CERTIFICATES,
)
from fairlead.api.tenant import Tenant
from fairlead.errors import NotFound
from fairlead.hub.intents.intent import IntentContext
from fairlead.kube.cache import WatchCache
from fairlead.kube.lease import check_leads
from fairlead.runtime.queue import KeyedQueue
from fairlead.translate.generated import domain_certificate, is_domain_certificate
from fairlead.translate.hostname import longest_suffix
from fairlead.translate.tenant import domain_holders

_NAMED = frozenset({"IngressClass", "Gateway"})


class DomainCertificates:
    """Asks for the certificates of the domains of members, by namespace."""

    def __init__(self, context: IntentContext) -> None:
        self._cluster = context.cluster
        self._inventory = context.inventory
        self._leading = context.leading
        self.queue: KeyedQueue[str] = KeyedQueue(clock=context.clock)

    def watch(self) -> None:
        """Subscribe to all that decides whether one is wanted."""
        inventory = self._inventory
        inventory.tenants.on_change(self._tenant_changed)
        inventory.intents[HTTP_LOAD_BALANCERS.kind].cache.on_change(self._load_balancer_changed)
        for cache in (inventory.classes, inventory.issuers, self._zones()):
            if cache is not None:
                cache.on_change(self._shared_changed)

    def lead(self) -> None:
        """Look at every member: this replica has begun to lead."""
        for tenant in self._inventory.tenants.values():
            self.queue.add(tenant.namespace)

    async def reconcile(self, namespace: str) -> None:
        """Ask for what one member needs, and for no more."""
        tenant = self._inventory.tenant_of(namespace)
        if tenant is None or tenant.deleting or not self._leading() or self._inventory.region:
            return
        wanted = self._wanted(tenant)
        there = {
            each.metadata.name: each
            for each in self._inventory.managed.by_index("namespace", namespace)
            if is_domain_certificate(each.metadata.name) and not each.deleting
        }
        for name, (domain, issuer) in wanted.items():
            hosts = (f"{WILDCARD}{domain}",)
            known = there.get(name)
            same = known is not None and (known.spec.hosts, known.spec.issuer) == (hosts, issuer)
            if not same and self._issues(issuer, tenant, domain):
                await self._ask(tenant, name, domain, issuer)
        for name in sorted(there.keys() - wanted.keys()) if not self._inventory.problem else ():
            check_leads(self._leading, f"ManagedCertificate {namespace}/{name}")
            with suppress(NotFound):
                await self._cluster.delete(MANAGED_CERTIFICATES, namespace, name)

    async def _ask(self, tenant: Tenant, name: str, domain: str, issuer: str) -> None:
        meta = tenant.metadata
        body: JSONObject = {
            "metadata": {"name": name, "namespace": tenant.namespace, "labels": {LABEL_MANAGED_BY: MANAGED_BY}},
            "spec": {
                "hosts": [f"{WILDCARD}{domain}"],
                "issuer": issuer,
                "askedBy": [{"kind": "Tenant", "name": meta.name, "uid": meta.uid}],
            },
        }
        check_leads(self._leading, f"ManagedCertificate {tenant.namespace}/{name}")
        await self._cluster.apply(MANAGED_CERTIFICATES, body, manager=MANAGER_CERTIFICATES)

    def _wanted(self, tenant: Tenant) -> dict[str, tuple[str, str]]:
        """Return the domain and the issuer of each certificate that is wanted, by name."""
        holders = domain_holders(self._inventory.all_tenants())
        domains = [each for each in tenant.name_domains if each and holders[each].metadata.name == tenant.metadata.name]
        if not domains:
            return {}
        issuers: set[str] = set()
        objects = self._inventory.intents[HTTP_LOAD_BALANCERS.kind]
        for obj in objects.cache.by_index("namespace", tenant.namespace):
            if obj.spec.origin.kind in _NAMED and not obj.deleting:
                its_class = self._inventory.load_balancer_class(obj.class_name or DEFAULT_CLASS)
                issuers.add(its_class.annotation(ANNOTATION_CERTIFICATE_ISSUER) if its_class is not None else "")
        return {
            domain_certificate(domain, each): (domain, each) for domain in domains for each in sorted(issuers - {""})
        }

    def _issues(self, issuer: str, tenant: Tenant, domain: str) -> bool:
        zones = self._zones()
        if zones is None or longest_suffix(domain, zones.values()) is None:
            return False
        there = self._inventory.issuers.get("", issuer)
        if there is None or there.deleting or "DNS01" not in there.spec.solvers:
            return False
        if there.spec.tenants and tenant.metadata.name not in there.spec.tenants:
            return False
        domains = there.spec.domains
        return not domains or any(is_within(domain, each) for each in domains)

    def _zones(self) -> WatchCache[DNSZone] | None:
        return self._inventory.caches.get(DNS_ZONES.plural)

    # --- changes -----------------------------------------------------------------------------------------------------

    def _tenant_changed(self, old: Tenant | None, new: Tenant | None) -> None:
        if old is None or new is None or (old.name_domains, old.accepted) != (new.name_domains, new.accepted):
            self.lead()  # the holder of a domain may be another member

    def _load_balancer_changed(self, old: HTTPLoadBalancer | None, new: HTTPLoadBalancer | None) -> None:
        changed = new or old
        if changed is not None and (old is None or new is None or old.class_name != new.class_name):
            self.queue.add(changed.metadata.namespace)

    def _shared_changed(self, old: KubeObject | None, new: KubeObject | None) -> None:
        if isinstance(new or old, LoadBalancerClass):
            issuers = {
                each.annotation(ANNOTATION_CERTIFICATE_ISSUER) if each is not None else "" for each in (old, new)
            }
            if len(issuers) == 1:
                return
        if old is None or new is None or not only_status_changed(old, new):
            self.lead()
