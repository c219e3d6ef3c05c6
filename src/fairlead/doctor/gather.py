"""Read a cluster and this machine once, for the checks and for the support bundle.

In: a connection, a data directory, the kubeconfigs in use. Out: ``ApiFacts`` with objects, rights that are denied and
expiry times; ``Machine``; the TCP targets of the proxies, and which of them answer. Every kind is read by itself, so
one that cannot be read hides none of the others. An account's rights are read by SubjectAccessReview, which only an
administrator may create; without an account, those of the kubeconfig's own user are read.
Never: a write (reviews store nothing), a Secret's content (only the expiry of certificates), or an error for a request
that an API server rejects: it is in ``unread``, and a cluster that does not answer has an ``error``.
Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from fairlead.agent.checks import gateway_needs, ingress_needs, member_needs, multicluster_needs
from fairlead.api.gateway import GATEWAY_CLASSES, GATEWAYS
from fairlead.api.json_text import decode
from fairlead.api.kinds import CRDS as OUR_CRDS
from fairlead.api.kubernetes import (
    CONFIG_MAPS,
    CRDS,
    DEPLOYMENTS,
    ENDPOINT_SLICES,
    INGRESS_CLASSES,
    INGRESSES,
    LEASES,
    NAMESPACES,
    NODES,
    PODS,
    SECRETS,
    SERVICE_ACCOUNTS,
    SERVICES,
    EndpointSlice,
)
from fairlead.api.meta import AnyResource, JSONObject, Wire
from fairlead.api.names import (
    ANNOTATION_ORDER,
    ANNOTATION_ORIGIN,
    GROUP,
    LABEL_LOAD_BALANCER,
    LABEL_MANAGED_BY,
    LABEL_NODES,
    LABEL_NODES_IPV6,
    LABEL_READINESS_GATE,
    LABEL_TENANT,
    MANAGED_BY,
    READINESS_GATE_ENABLED,
    SYSTEM_NAMESPACE,
    VERSION,
    label_value,
)
from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
from fairlead.doctor.facts import (
    ApiFacts,
    ConnectionResult,
    Denied,
    Expiry,
    Machine,
    Objects,
    annotation,
    mapping,
    meta,
    name_of,
    path_of,
)
from fairlead.errors import BadConfiguration, FairleadError, NotServed
from fairlead.kube.cluster import Cluster
from fairlead.kube.config import expiry_of
from fairlead.kube.discovery import AccessNeed, served_kinds
from fairlead.model.in_words import host_port
from fairlead.model.key_pair import Validity, validity_of
from fairlead.providers.envoy.envoy_process import file_limit, find_binary, local_envoys, low_ports_problem
from fairlead.runtime.private_file import readable_by_others
from fairlead.standalone.hub_settings import hub_needs
from fairlead.standalone.right_cluster import tenant_of

_OURS = f"{LABEL_MANAGED_BY}={MANAGED_BY}"
_OF_TENANTS = f"{_OURS},{LABEL_TENANT}"
_PARTS = "app.kubernetes.io/name in (fairlead-hub,fairlead-agent)"
_PAGE = 500


class KindToRead(msgspec.Struct, frozen=True):
    """One kind to read: its namespace, a selector, and whether a server may lack it."""

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
    if name != "hub":
        pods, unread_pods = await read_objects(cluster, _gated(objects))
        objects |= pods
        unread |= unread_pods
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


def _gated(objects: Objects) -> list[KindToRead]:
    """Return the pods to read: those of namespaces where a namespace or a Service asks for readiness gates."""
    namespaces = {
        name_of(obj) if kind is NAMESPACES else str(meta(obj, "namespace"))
        for kind in (NAMESPACES, SERVICES)
        for obj in objects.get(kind.full_name, [])
        if mapping(meta(obj, "labels")).get(LABEL_READINESS_GATE) == READINESS_GATE_ENABLED
    }
    return [KindToRead(PODS, namespace) for namespace in sorted(namespaces)]


async def read_objects(
    cluster: Cluster, wanted: Iterable[KindToRead], *, installed: bool = True
) -> tuple[Objects, dict[str, str]]:
    """Return the objects by kind, and why a kind could not be read; ``installed``: whether ours must be there."""
    objects, unread = Objects(), dict[str, str]()
    kinds = [each for each in wanted if installed or each.resource.group != GROUP]
    answers = await asyncio.gather(*(list_objects(cluster, kind) for kind in kinds))
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
    """Return the objects of one kind, or why they could not be read; empty if the server may lack it."""
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
        return frozenset(kind.name for kind in await served_kinds(cluster, GROUP, VERSION))
    except FairleadError:
        return frozenset()


async def _key_of(cluster: Cluster) -> str:
    try:
        return await tenant_of(cluster)
    except (FairleadError, msgspec.DecodeError):
        return ""


async def with_endings(cluster: Cluster, facts: ApiFacts) -> ApiFacts:
    """Return the facts with the expiries; of a member only that of the kubeconfig's token."""
    if facts.error:
        return facts
    inline = cluster.config.inline_token
    ends = expiry_of(await inline.token()) if inline is not None else None
    where = cluster.config.source or cluster.server
    renew = "fairlead tenant add NAME --output FILE   for an agent; for yourself as your cluster's sign-in says"
    endings = [Expiry("token", where, ends, renew)] if ends is not None else []
    if facts.name == "hub":
        endings += await _certificates(cluster, facts.list(NAMESPACES))
    return msgspec.structs.replace(facts, endings=tuple(endings))


async def _certificates(cluster: Cluster, namespaces: list[JSONObject]) -> list[Expiry]:
    names = [SYSTEM_NAMESPACE, *(name_of(namespace) for namespace in namespaces if _is_tenants(namespace))]
    answers = await asyncio.gather(*(list_objects(cluster, KindToRead(SECRETS, name)) for name in names))
    secrets = [secret for answer in answers if isinstance(answer, list) for secret in answer]
    return [ending for secret in secrets if (ending := certificate_ending(secret)) is not None]


def certificate_ending(secret: JSONObject) -> Expiry | None:
    """Return when the certificate of a Secret at the hub ends, with who renews it; None where that is not looked at.

    Of those that the hub gets itself, the check of certificates says more.
    """
    validity = _validity_of(mapping(secret.get("data")).get("tls.crt"))
    if validity is None or annotation(secret, ANNOTATION_ORDER):
        return None
    member, _, place = annotation(secret, ANNOTATION_ORIGIN).partition("/")
    namespace, _, name = place.partition("/")
    renew = (
        f"kubectl get secret -n {namespace} {name}   in member {member}: renew it there, the copy follows"
        if name
        else "fairlead hub   renews it while it leads: look at its log"
    )
    return Expiry("certificate", path_of("Secret", secret), validity.ends, renew, tuple(sorted(validity.names)))


def _validity_of(data: object) -> Validity | None:
    """Return what the first certificate in a field of a Secret is valid for; None when there is none."""
    try:
        return validity_of(base64.b64decode(str(data or "")))
    except binascii.Error:
        return None


def _is_tenants(namespace: JSONObject) -> bool:
    return LABEL_TENANT in mapping(meta(namespace, "labels"))


_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Allowed(msgspec.Struct):
    class ReviewStatus(msgspec.Struct):
        allowed: bool = False

    status: ReviewStatus = msgspec.field(default_factory=ReviewStatus)


async def with_rights(cluster: Cluster, side: ApiFacts, *, cluster_set: bool = False) -> ApiFacts:
    """Return the side with what its account lacks; with a reason in ``unread`` when that could not be asked.

    ``cluster_set``: the member exports and imports Services.
    """
    if side.error:
        return side
    account = "fairlead-hub" if side.name == "hub" else "fairlead-agent"
    try:
        accounts = await cluster.list(SERVICE_ACCOUNTS, SYSTEM_NAMESPACE)
        has_account = account in {obj.metadata.name for obj in accounts}
        needs = _needs(side, deployment=has_account, cluster_set=cluster_set)
        answers = await asyncio.gather(*(_allowed(cluster, need, account if has_account else "") for need in needs))
    except FairleadError as error:
        unread = {**side.unread, "subjectaccessreviews.authorization.k8s.io": error.sentence}
        return msgspec.structs.replace(side, unread=unread)
    subject = f"service account {SYSTEM_NAMESPACE}/{account}" if has_account else "the user of the kubeconfig"
    denied = tuple(_denied(subject, need) for need, allowed in zip(needs, answers, strict=True) if not allowed)
    return msgspec.structs.replace(side, denied=denied)


def _needs(side: ApiFacts, *, deployment: bool, cluster_set: bool) -> Sequence[AccessNeed]:
    if side.name == "hub":
        return hub_needs(deployment=deployment)
    with_gateways = gateway_needs() if side.knows(GATEWAY_CLASSES) else []
    with_set = multicluster_needs() if cluster_set else []
    return [*member_needs(system_namespace=SYSTEM_NAMESPACE), *ingress_needs(), *with_gateways, *with_set]


async def _allowed(cluster: Cluster, need: AccessNeed, account: str) -> bool:
    resource = need.resource
    namespace = need.namespace if resource.namespaced else ""
    if not account:
        return await cluster.can_i(need.verb, resource.group, resource.plural, namespace, need.name, need.subresource)
    attributes: JSONObject = {
        "verb": need.verb,
        "group": resource.group,
        "resource": resource.plural,
        "subresource": need.subresource,
        "namespace": namespace,
        "name": need.name,
    }
    user = f"system:serviceaccount:{SYSTEM_NAMESPACE}:{account}"
    groups = ["system:serviceaccounts", f"system:serviceaccounts:{SYSTEM_NAMESPACE}", "system:authenticated"]
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": groups, "resourceAttributes": attributes},
    }
    return (await cluster.raw_as("POST", _REVIEWS, _Allowed, body=msgspec.json.encode(body))).status.allowed


def _denied(account: str, need: AccessNeed) -> Denied:
    name = "/".join(filter(None, (need.resource.full_name, need.subresource)))
    return Denied(account, need.verb, name, need.namespace)


_RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
_MOST = 256


def gather_machine(data_dir: Path | None, kubeconfigs: Iterable[Path]) -> Machine:
    """Return what this machine allows; ``data_dir`` None: no directory is looked at."""
    try:
        binary, envoy_problem = str(find_binary()), ""
    except BadConfiguration as error:
        binary, envoy_problem = "", error.sentence
    return Machine(
        data_dir=str(data_dir or ""),
        data_dir_problem=_directory_problem(data_dir) if data_dir else "",
        envoy=binary,
        envoy_problem=envoy_problem,
        low_ports_problem=low_ports_problem(Path(binary)) if binary else "",
        file_limit=file_limit(),
        free_bytes=_free(data_dir) if data_dir else 1 << 40,
        ephemeral_ports=_port_range(),
        open_kubeconfigs=tuple(str(path) for path in kubeconfigs if _others_may_read(path)),
        lost_envoys=tuple(_lost_envoys()),
    )


async def connect_all(targets: Sequence[tuple[str, str, int]], *, timeout_s: float) -> tuple[ConnectionResult, ...]:
    """Connect to (load balancer, host, port), some at a time, and say which did not answer."""
    limit = asyncio.Semaphore(32)

    async def attempt(load_balancer: str, host: str, port: int) -> ConnectionResult:
        target = host_port(host, port)
        async with limit:
            try:
                async with asyncio.timeout(timeout_s):
                    _, writer = await asyncio.open_connection(host, port)
            except TimeoutError:
                return ConnectionResult(load_balancer, target, f"no answer within {timeout_s:g} s")
            except OSError as error:
                return ConnectionResult(load_balancer, target, os.strerror(error.errno) if error.errno else str(error))
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            return ConnectionResult(load_balancer, target)

    return tuple(await asyncio.gather(*(attempt(*target) for target in targets[:_MOST])))


def _directory_problem(directory: Path) -> str:
    if not directory.exists():
        return "the directory does not exist; the hub creates it when it starts, if permitted"
    if not directory.is_dir():
        return "not a directory"
    return "" if os.access(directory, os.W_OK | os.X_OK) else "this user may not write to it"


def _free(directory: Path) -> int:
    there = next((path for path in (directory, *directory.absolute().parents) if path.exists()), Path("/"))
    return shutil.disk_usage(there).free


def _port_range() -> tuple[int, int]:
    try:
        first, last = _RANGE.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return Machine().ephemeral_ports
    return int(first), int(last)


def _others_may_read(path: Path) -> bool:
    try:
        return readable_by_others(path.stat().st_mode)
    except OSError:
        return False


def _lost_envoys() -> list[str]:
    """Return the data directories of Envoys that run without them."""
    return sorted(str(path) for path in local_envoys() if not path.exists())


def targets_of(hub: ApiFacts) -> list[tuple[str, str, int]]:
    """Return the TCP targets of all load balancers: nodes at node ports, or pods at their own."""
    nodes: dict[str, list[EndpointSlice]] = defaultdict(list)
    pods: dict[tuple[str, str], list[EndpointSlice]] = defaultdict(list)
    for endpoints in hub.read(ENDPOINT_SLICES):
        namespace, labels = endpoints.metadata.namespace, endpoints.metadata.labels or {}
        if labels.keys() & {LABEL_NODES, LABEL_NODES_IPV6}:
            nodes[namespace].append(endpoints)
        elif LABEL_LOAD_BALANCER in labels:
            pods[namespace, labels[LABEL_LOAD_BALANCER]].append(endpoints)
    first_of: dict[tuple[str, int], str] = {}
    for lb in hub.read(TCP_LOAD_BALANCERS):
        namespace, name = lb.key
        if lb.spec.targets == "Node":
            ports = [port.node_port for port in lb.spec.ports if port.protocol == "TCP" and port.node_port]
            families = lb.spec.ip_families or ("IPv4",)
            reached = [endpoints for endpoints in nodes[namespace] if endpoints.address_type in families]
            pairs = [(host, port) for endpoints in reached for host in _addresses(endpoints) for port in ports]
        else:
            pairs = [
                (host, port.port)
                for endpoints in pods[namespace, label_value(name)]
                for port in endpoints.ports or ()
                if port.port and (port.protocol or "TCP") == "TCP"
                for host in _addresses(endpoints)
            ]
        for pair in pairs:
            first_of.setdefault(pair, f"tcplb/{namespace}/{name}")
    return [(lb, host, port) for (host, port), lb in sorted(first_of.items())]


def _addresses(endpoints: EndpointSlice) -> Iterator[str]:
    for endpoint in endpoints.endpoints or ():
        if endpoint.ready:
            yield from endpoint.addresses or ()
