"""Read a cluster once, for the checks and for the support bundle.

In: a connection. Out: ``ApiFacts``. Every kind is read by itself, so that one that may not be read, or is missing,
hides none of the others. Never: a write, a Secret's content (only the ends of certificates), or an error for what an
API server refuses: it is in ``unread``, and a cluster that does not answer has an ``error``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence

import msgspec

from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS
from fairlead.api.ingress import INGRESS_CLASSES, INGRESSES
from fairlead.api.json_text import decode
from fairlead.api.kinds import CRDS as OUR_CRDS
from fairlead.api.kubernetes import CONFIG_MAPS, CRDS, DEPLOYMENTS, ENDPOINT_SLICES, LEASES, NAMESPACES, NODES, SERVICES
from fairlead.api.meta import AnyResource, JSONObject, Wire
from fairlead.api.names import GROUP, LABEL_MANAGED_BY, LABEL_TENANT, MANAGED_BY, SYSTEM_NAMESPACE, VERSION
from fairlead.doctor.facts import ApiFacts, Objects
from fairlead.doctor.reading import meta, name_of
from fairlead.errors import FairleadError, NotServed
from fairlead.kube.cluster import Cluster
from fairlead.kube.discovery import served_kinds
from fairlead.standalone.right_cluster import tenant_of

_OURS = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
_OF_TENANTS = f"{_OURS},{LABEL_TENANT}"
_PARTS = "app.kubernetes.io/name in (fairlead-hub,fairlead-agent)"
_PAGE = 500


class KindToRead(msgspec.Struct, frozen=True):
    """One kind to read: where, which of its objects, and whether a server without it is no fault."""

    resource: AnyResource
    namespace: str = ""
    selector: str = ""
    optional: bool = False


HUB = (
    # A kind of ours that is not served has a check of its own.
    *(KindToRead(crd.resource, optional=True) for crd in OUR_CRDS),
    KindToRead(LEASES),
    KindToRead(NAMESPACES),
    KindToRead(CRDS, optional=True),
    KindToRead(CONFIG_MAPS, SYSTEM_NAMESPACE),
    KindToRead(SERVICES, selector=_OF_TENANTS),
    KindToRead(ENDPOINT_SLICES, selector=_OURS),
    KindToRead(DEPLOYMENTS, selector=_OF_TENANTS, optional=True),
    KindToRead(DEPLOYMENTS, selector=_PARTS, optional=True),
)
MEMBER = (
    KindToRead(SERVICES),
    KindToRead(ENDPOINT_SLICES),
    KindToRead(NODES),
    KindToRead(NAMESPACES),
    KindToRead(LEASES),
    KindToRead(INGRESSES),
    KindToRead(INGRESS_CLASSES),
    KindToRead(GATEWAY_CLASSES, optional=True),
    KindToRead(GATEWAYS, optional=True),
    KindToRead(DEPLOYMENTS, selector=_PARTS, optional=True),
)
#: Of the CustomResourceDefinitions of a cluster only ours are kept.
_SUFFIX = f".{GROUP}"


class _List(Wire, frozen=True):
    items: list[JSONObject] | None = None
    metadata: JSONObject = msgspec.field(default_factory=JSONObject)


async def gather(cluster: Cluster, name: str, wanted: Sequence[KindToRead]) -> ApiFacts:
    """Return what was read of a cluster; ``name`` is hub or member."""
    flags = cluster.config.flags
    try:
        version = await cluster.version()
    except FairleadError as error:
        return ApiFacts(name=name, server=cluster.server, flags=flags, error=error.sentence)
    served = await _served(cluster)
    objects, unread = await read_objects(cluster, wanted, installed=bool(served) or name != "hub")
    systems = [namespace for namespace in objects.get(NAMESPACES.full_name, []) if name_of(namespace) == "kube-system"]
    return ApiFacts(
        name=name,
        server=cluster.server,
        flags=flags,
        version=version,
        uid=str(meta(systems[0], "uid")) if systems else "",
        key_of=await _key_of(cluster),
        ahead_s=cluster.server_clock.ahead_s,
        now=cluster.server_clock.now(),
        served=served,
        objects=objects,
        unread=unread,
    )


async def read_objects(
    cluster: Cluster, wanted: Iterable[KindToRead], *, installed: bool = True
) -> tuple[Objects, dict[str, str]]:
    """Return the objects by kind, and why a kind could not be read; ``installed``: whether ours must be there."""
    objects, unread = Objects(), dict[str, str]()
    kinds = [each for each in wanted if installed or each.resource.group != GROUP]
    answers = await asyncio.gather(*(list_objects(cluster, each) for each in kinds))
    for each, answer in zip(kinds, answers, strict=True):
        kind = each.resource.full_name
        if isinstance(answer, str):
            if answer:
                unread[kind] = answer
            continue
        kept = [obj for obj in answer if each.resource is not CRDS or name_of(obj).endswith(_SUFFIX)]
        objects.setdefault(kind, []).extend(kept)
    return objects, unread


async def list_objects(cluster: Cluster, wanted: KindToRead) -> list[JSONObject] | str:
    """Return the objects of one kind, or why they could not be read; empty where it is no fault that they could not."""
    params = {"limit": str(_PAGE)} | ({"labelSelector": wanted.selector} if wanted.selector else {})
    objects: list[JSONObject] = []
    path = wanted.resource.path(wanted.namespace)
    try:
        while True:
            page = decode(await cluster.raw("GET", path, params=params), _List)
            objects += [
                {"apiVersion": wanted.resource.api_version, "kind": wanted.resource.kind, **obj}
                for obj in page.items or ()
            ]
            params["continue"] = str(page.metadata.get("continue") or "")
            if not params["continue"]:
                return objects
    except NotServed as error:
        return "" if wanted.optional else error.sentence
    except FairleadError as error:
        return error.sentence
    except msgspec.DecodeError as error:
        return f"The list of {wanted.resource.full_name} cannot be read: {error}"


async def _served(cluster: Cluster) -> frozenset[str]:
    try:
        return frozenset(each.name for each in await served_kinds(cluster, GROUP, VERSION))
    except FairleadError:
        return frozenset()


async def _key_of(cluster: Cluster) -> str:
    try:
        return await tenant_of(cluster)
    except (FairleadError, msgspec.DecodeError):
        return ""
