"""All kinds of ``fairlead.dev``: what ``fairlead crds`` prints and ``hub`` installs."""

from __future__ import annotations

from fairlead.api.backendgroup import BACKEND_GROUPS
from fairlead.api.backendrecord import BACKEND_RECORDS
from fairlead.api.crd import Column, Rule, build_crd
from fairlead.api.loadbalancer import LOAD_BALANCERS
from fairlead.api.loadbalancerclass import CHANGEABLE_PARAMETERS, LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.nodepool import NODE_POOLS
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS

_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_ACCEPTED = '.status.conditions[?(@.type=="Accepted")]'
_IN_USE = '.status.conditions[?(@.type=="InUse")]'
_PROGRAMMED = '.status.conditions[?(@.type=="Programmed")]'


def _fixed(field: str) -> Rule:
    """Return the rule that a map never changes; absent and empty are the same."""
    return Rule(
        f"(has(self.{field}) ? self.{field} : {{}}) == (has(oldSelf.{field}) ? oldSelf.{field} : {{}})",
        f"{field} is immutable: create another LoadBalancer",
        f".{field}",
    )


def _class_parameters() -> Rule:
    """Return the rule that a class's parameters never change, but for those that only say how we come."""
    new, old = (f"(has({one}.parameters) ? {one}.parameters : {{}})" for one in ("self", "oldSelf"))
    names = ", ".join(f"'{one}'" for one in CHANGEABLE_PARAMETERS)
    free = f"k in [{names}] || k.startsWith('timeout.')"
    return Rule(
        f"{new}.all(k, {free} || (k in {old} && {old}[k] == {new}[k])) && {old}.all(k, {free} || k in {new})",
        f"parameters is immutable, but for {', '.join(CHANGEABLE_PARAMETERS)} and timeout.<hook>: create another class",
        ".parameters",
    )


def all_crds() -> list[JSONObject]:
    """Return the CRDs of every kind, in the order in which a reader meets them."""
    return [
        build_crd(
            TENANTS,
            short_names=["tn"],
            columns=[
                Column("Namespace", ".status.namespace"),
                Column("Region", ".spec.region"),
                Column("State", ".status.state"),
                Column("Since", ".status.lastSyncTime", "date", priority=1),
                _AGE,
            ],
            rules=[
                Rule(
                    "(has(self.__namespace__) ? self.__namespace__ : '') == "
                    "(has(oldSelf.__namespace__) ? oldSelf.__namespace__ : '')",
                    "namespace is immutable: delete the Tenant and create another",
                ),
                Rule(
                    "self.metadata.name.matches('^[a-z0-9]([-a-z0-9]*[a-z0-9])?$') && size(self.metadata.name) <= 56",
                    "metadata.name becomes part of a namespace: at most 56 of a-z, 0-9 and -, and no dots",
                    whole=True,
                ),
            ],
        ),
        build_crd(
            LOAD_BALANCER_CLASSES,
            short_names=["lbc"],
            columns=[
                Column("Provider", ".spec.provider"),
                Column("Targets", ".spec.targets"),
                Column("Accepted", f"{_ACCEPTED}.status"),
                Column("Load Balancers", ".status.loadBalancers", "integer", description="what asks for it"),
                Column("Draining", ".spec.draining", "boolean"),
                Column("Drain", ".spec.drain", priority=1),
                Column("Used By", f"{_IN_USE}.message", priority=1),
                _AGE,
            ],
            rules=[
                Rule("self.provider == oldSelf.provider", "provider is immutable: create another class", ".provider"),
                _class_parameters(),
            ],
        ),
        build_crd(
            TCP_LOAD_BALANCERS,
            short_names=["tcplb"],
            columns=[
                Column("Class", ".spec.className"),
                Column("Address", ".status.address"),
                Column("Programmed", f"{_PROGRAMMED}.status"),
                Column("Reason", f"{_PROGRAMMED}.reason"),
                Column("Targets", ".status.targets"),
                Column("Origin", ".metadata.annotations.fairlead\\.dev/origin", priority=1),
                _AGE,
            ],
        ),
        build_crd(
            LOAD_BALANCERS,
            short_names=["lb"],
            columns=[
                Column("Class", ".spec.className"),
                Column("Address", ".status.address"),
                Column("Programmed", f"{_PROGRAMMED}.status"),
                Column("Reason", f"{_PROGRAMMED}.reason"),
                Column("Targets", ".status.backends", description="registered/expected"),
                _AGE,
            ],
            rules=[
                Rule(
                    "self.className == oldSelf.className",
                    "className is immutable: create another LoadBalancer",
                    ".className",
                ),
                _fixed("existing"),
                _fixed("parameters"),
                Rule("size(self.listeners) > 0", "at least one listener is needed"),
            ],
        ),
        build_crd(
            BACKEND_GROUPS,
            short_names=["bg"],
            columns=[
                Column("Load Balancers", ".spec.loadBalancers"),
                Column("Programmed", f"{_PROGRAMMED}.status"),
                Column("Reason", f"{_PROGRAMMED}.reason"),
                Column("Registered", ".status.registeredBackends", "integer"),
                Column("Expected", ".status.backends", "integer"),
                _AGE,
            ],
            rules=[
                Rule(
                    "[has(self.pods), has(self.service), has(self.static)].filter(x, x).size() == 1",
                    "exactly one of pods, service and static is needed",
                ),
                Rule(
                    "has(self.pods) == has(oldSelf.pods) && has(self.service) == has(oldSelf.service)",
                    "the kind of backends (pods, service or static) is immutable: create another BackendGroup",
                ),
                Rule(
                    "!has(self.pods) || has(self.pods.byLabel) != has(self.pods.byName)",
                    "pods: exactly one of byLabel and byName is needed",
                ),
                Rule(
                    "!has(self.deregisterPolicy) || self.deregisterPolicy != 'Webhook' || has(self.deregisterWebhook)",
                    "deregisterPolicy Webhook needs deregisterWebhook",
                ),
            ],
        ),
        build_crd(
            BACKEND_RECORDS,
            short_names=["br"],
            columns=[
                Column("Load Balancer", ".spec.loadBalancer.name"),
                Column("Target", ".spec.target.name", description="the object behind the address, if there is one"),
                Column("Address", ".spec.target.address"),
                Column("Port", ".spec.target.port", "integer"),
                Column("State", ".status.state"),
                Column("Reason", ".status.reason"),
                Column("Since", ".status.since", "date", priority=1),
                _AGE,
            ],
            rules=[
                Rule(
                    "self.loadBalancer.name == oldSelf.loadBalancer.name && "
                    "self.loadBalancer.kind == oldSelf.loadBalancer.kind && "
                    "self.loadBalancer.provider == oldSelf.loadBalancer.provider && "
                    "self.listener.port == oldSelf.listener.port && "
                    "self.listener.protocol == oldSelf.listener.protocol && "
                    "self.target.address == oldSelf.target.address && self.target.port == oldSelf.target.port",
                    "a record is about one backend for its whole life",
                )
            ],
            one_write=True,
        ),
        build_crd(
            NODE_POOLS,
            short_names=["np"],
            columns=[Column("Region", ".spec.region"), _AGE],
        ),
        build_crd(
            POOL_SERVICES,
            short_names=["ps"],
            columns=[
                Column("Service", ".metadata.labels.openyurt\\.io/service-name"),
                Column("Pool", ".spec.nodepoolName"),
                Column("Class", ".spec.loadBalancerClass"),
                Column("Address", ".status.address"),
                Column("Programmed", f"{_PROGRAMMED}.status"),
                Column("Ready/Total", ".status.targets"),
                Column("Renewed", ".spec.renewTime", "date", priority=1),
                _AGE,
            ],
        ),
    ]
