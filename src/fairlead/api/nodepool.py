"""NodePool: a region, that is a set of nodes with a network of their own. Ours, and OpenYurt's."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from fairlead.api.crd import AGE, Column, Crd
from fairlead.api.meta import KubeObject, Resource, Wire
from fairlead.api.names import GROUP, VERSION


class NodePoolSpec(Wire, frozen=True, gc=False):
    """Which nodes, and where they are.

    A node belongs to the pool when it has all labels of nodeSelector; an empty nodeSelector selects no node. When two
    pools claim a node the older pool keeps it. region defaults to the pool's name; its hub is started with --region.
    """

    node_selector: Annotated[dict[str, str], Meta(max_length=32)] = msgspec.field(default_factory=dict[str, str])
    region: Annotated[str, Meta(max_length=63)] = ""


class NodePool(KubeObject, frozen=True, gc=False):
    """One region. Its own labels are what a Service's fairlead.dev/nodepool-selector matches."""

    spec: NodePoolSpec = NodePoolSpec()


class OpenYurtNodePool(KubeObject, frozen=True, gc=False):
    """OpenYurt's NodePool: its nodes carry its name in the label apps.openyurt.io/nodepool."""


NODE_POOLS = Resource(GROUP, VERSION, "NodePool", "nodepools", False, NodePool)

OPENYURT_GROUP = "apps.openyurt.io"
#: Newest first: the first one that is served is used.
OPENYURT_VERSIONS = ("v1beta2", "v1beta1", "v1alpha1")


def openyurt_node_pools(version: str) -> Resource[OpenYurtNodePool]:
    """Return OpenYurt's kind in one of its versions."""
    return Resource(OPENYURT_GROUP, version, "NodePool", "nodepools", False, OpenYurtNodePool)


NODE_POOL_CRD = Crd(
    NODE_POOLS,
    short_names=("np",),
    columns=(Column("Region", ".spec.region"), AGE),
)
