"""The contract of clusterctl of Cluster API with a provider: labels of its kinds, and the version that releases follow.

In: our CustomResourceDefinitions, a version. Out: labelled definitions, and the text of metadata.yaml.
Never: a label that makes clusterctl move what does not belong to a Cluster: objects of tenants stay where they are.
Source: https://cluster-api.sigs.k8s.io/developer/providers/contracts/clusterctl
"""

from __future__ import annotations

from copy import deepcopy

from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import VERSION

#: The name of the provider, and its type: an add-on, so that nothing takes it for what makes machines.
PROVIDER, PROVIDER_TYPE = "fairlead", "AddonProvider"
PROVIDER_LABEL = f"addon-{PROVIDER}"
CONTRACT = "v1beta2"
#: Every contract that our kinds follow; an older Cluster API looks for the older one.
_CONTRACTS = ("v1beta1", CONTRACT)
_LABEL_PROVIDER = "cluster.x-k8s.io/provider"
_LABEL_CLUSTERCTL = "clusterctl.cluster.x-k8s.io"
_LABEL_MOVE = "clusterctl.cluster.x-k8s.io/move"


def labels_of(crd: JSONObject) -> dict[str, str]:
    """Return the labels of one definition.

    A LoadBalancer is owned by its Cluster, and a BackendGroup by its LoadBalancer, so both move with it. A class is
    owned by nothing, and is copied: clusterctl never removes one from where it was.
    """
    contracts = {f"cluster.x-k8s.io/{contract}": VERSION for contract in _CONTRACTS}
    labels = {_LABEL_PROVIDER: PROVIDER_LABEL, _LABEL_CLUSTERCTL: "", **contracts}
    return {**labels, _LABEL_MOVE: ""} if crd["metadata"]["name"] == LOAD_BALANCER_CLASSES.full_name else labels


def labelled(crds: list[JSONObject]) -> list[JSONObject]:
    """Return the definitions with the labels of the contract added to their own."""
    copies = deepcopy(crds)
    for crd in copies:
        meta: JSONObject = crd["metadata"]
        meta["labels"] = {**meta.get("labels", {}), **labels_of(crd)}
    return copies


def metadata(version: str) -> JSONObject:
    """Return metadata.yaml: the contract of the release series that ``version`` is of.

    Raises:
        ValueError: the version has no major and minor number.
    """
    major, minor, *_ = version.removeprefix("v").split(".")
    return {
        "apiVersion": "clusterctl.cluster.x-k8s.io/v1alpha3",
        "kind": "Metadata",
        "releaseSeries": [{"major": int(major), "minor": int(minor), "contract": CONTRACT}],
    }
