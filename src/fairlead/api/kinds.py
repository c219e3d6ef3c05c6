"""All kinds of ``fairlead.dev``: what ``fairlead crds`` prints and ``hub`` installs."""

from __future__ import annotations

from fairlead.api.crd import Column, Rule, build_crd
from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.nodepool import NODE_POOLS
from fairlead.api.poolservice import POOL_SERVICES
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.api.tenant import TENANTS

_AGE = Column("Age", ".metadata.creationTimestamp", "date")
_PROGRAMMED = '.status.conditions[?(@.type=="Programmed")]'


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
                )
            ],
        ),
        build_crd(
            LOAD_BALANCER_CLASSES,
            short_names=["lbc"],
            columns=[
                Column("Provider", ".spec.provider"),
                Column("Targets", ".spec.targets"),
                Column("Drain", ".spec.drain"),
                _AGE,
            ],
            rules=[Rule("self.provider == oldSelf.provider", "provider is immutable: create another class")],
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
