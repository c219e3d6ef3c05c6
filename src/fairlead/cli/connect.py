"""Connect a short command to an API: with short timeouts, because a person is waiting."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

from fairlead.errors import Forbidden, NotServed, first_of
from fairlead.kube.cluster import Cluster
from fairlead.kube.transport import RetryPolicy

#: The reason of the error for an API server without our kinds.
NO_KINDS = "NoKinds"
IMPATIENT = RetryPolicy(attempts=3, base_s=0.2, limit_s=1.0, deadline_s=10.0, connect_s=4.0, read_s=8.0)


@asynccontextmanager
async def connect(kubeconfig: Path | None, *, name: str, context: str = "") -> AsyncGenerator[Cluster]:
    """Open the cluster of a kubeconfig for one command; an empty context is the kubeconfig's current one.

    Raises:
        BadConfiguration: the kubeconfig is wrong, or what was denied is so because it is the key of an agent.
    """
    async with Cluster.from_kubeconfig(kubeconfig, context=context, name=name, policy=IMPATIENT) as cluster:
        try:
            yield cluster
        except (Forbidden, BaseExceptionGroup) as error:
            if isinstance(error, Forbidden) or isinstance(first_of(error), Forbidden):
                from fairlead.standalone.right_cluster import refuse_tenants_key

                await refuse_tenants_key(cluster)
            raise


async def check_kinds(cluster: Cluster) -> set[str]:
    """Return the names of the classes; raise ``NotServed`` where no hub has ever run."""
    from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES

    try:
        return {cls.metadata.name for cls in await cluster.list(LOAD_BALANCER_CLASSES)}
    except NotServed as error:
        raise no_kinds(error) from error


def no_kinds(error: NotServed) -> NotServed:
    """Return the error for an API server without our CustomResourceDefinitions."""
    sentence = (
        "This API does not know Fairlead's kinds: no hub has run here yet. If it is a member, give the kubeconfig of "
        "the hub; to make it a hub: fairlead hub"
    )
    return NotServed(sentence, detail=error.sentence, reason=NO_KINDS)
