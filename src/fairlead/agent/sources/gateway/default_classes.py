"""Create the GatewayClass ``fairlead`` in a cluster that is its own hub, once Gateway API is installed there.

In: the cluster. Out: GatewayClass ``fairlead``, made once, when the kind is there or as soon as it comes. Never:
changes a class that is there, creates one again that was deleted, or installs a kind.
"""

from __future__ import annotations

import structlog

from fairlead.api.gateway import GATEWAY_CLASSES
from fairlead.api.meta import JSONObject
from fairlead.api.names import GATEWAY_CONTROLLER
from fairlead.errors import AlreadyExists, FairleadError, NotServed
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import LOOK_S

GATEWAY_CLASS_NAME = "fairlead"

log = structlog.get_logger(__name__)


async def make_gateway_class(cluster: Cluster, *, name: str = GATEWAY_CLASS_NAME, look_s: float = LOOK_S) -> None:
    """Return once there is a GatewayClass of this name; until then try again, and log each new reason once."""
    wanted: JSONObject = {"metadata": {"name": name}, "spec": {"controllerName": GATEWAY_CONTROLLER}}
    problem = ""
    while True:
        try:
            await cluster.create(GATEWAY_CLASSES, wanted)
        except AlreadyExists:
            return
        except NotServed:
            pass  # Gateway API is not installed (yet)
        except FairleadError as error:
            if error.sentence != problem:
                problem = error.sentence
                log.warning("the GatewayClass is not made yet", sentence=error.sentence, detail=error.detail)
        else:
            log.info("made", kind=GATEWAY_CLASSES.full_name, name=name)
            return
        await cluster.clock.sleep(look_s)
