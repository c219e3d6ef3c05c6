"""The classes that a cluster which serves itself has by default: made when they are absent, never changed.

In: the cluster. Out: IngressClass ``fairlead``; sentences about what could not be made. Never: takes over a class.
"""

from __future__ import annotations

from contextlib import suppress

from fairlead.api.ingress import INGRESS_CLASSES, IngressClass
from fairlead.api.meta import JSONObject
from fairlead.api.names import INGRESS_CONTROLLER
from fairlead.errors import AlreadyExists, Forbidden, NotServed
from fairlead.kube.cluster import Cluster
from fairlead.standalone.one_cluster_report import CLASS_NAME


async def ensure_ingress_class(cluster: Cluster) -> list[str]:
    """Make the IngressClass when it is absent; return why its Ingresses are not served, if so.

    Raises:
        Retry: the cluster does not answer, or takes no writes now.
    """
    wanted: JSONObject = {"metadata": {"name": CLASS_NAME}, "spec": {"controller": INGRESS_CONTROLLER}}
    try:
        with suppress(AlreadyExists):
            await cluster.create(INGRESS_CLASSES, wanted)
        existing: IngressClass = await cluster.get(INGRESS_CLASSES, "", CLASS_NAME)
    except Forbidden as error:
        return [f"IngressClass {CLASS_NAME} could not be made: {error.sentence}"]
    except NotServed:
        return ["this cluster does not serve the kinds of networking.k8s.io/v1, so it has no Ingresses"]
    if not existing.is_ours:
        return [
            f"IngressClass {CLASS_NAME} is of another controller ({existing.spec.controller}), so its Ingresses are "
            f"not served here; make one of another name with controller {INGRESS_CONTROLLER}"
        ]
    return []
