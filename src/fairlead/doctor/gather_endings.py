"""Expiry times of the kubeconfig's token and of Fairlead's certificates at a hub.

In: a connection, and the names of its namespaces. Out: ``Expiry`` for the kubeconfig's token and each certificate in a
Secret of Fairlead's. Never: a key; of a Secret only the end of its certificate is kept, and one that may not be read is
left out.
"""

from __future__ import annotations

import asyncio
import base64
import binascii

import msgspec

from fairlead.api.kubernetes import NAMESPACES, SECRETS
from fairlead.api.meta import JSONObject
from fairlead.api.names import ANNOTATION_ORDER, ANNOTATION_ORIGIN, LABEL_TENANT, SYSTEM_NAMESPACE
from fairlead.doctor.facts import ApiFacts, Expiry
from fairlead.doctor.gather import KindToRead, list_objects
from fairlead.doctor.reading import annotation, mapping, meta, name_of, path_of
from fairlead.kube.cluster import Cluster
from fairlead.kube.oidc import expiry_of
from fairlead.model.key_pair import Validity, validity_of


async def with_endings(cluster: Cluster, facts: ApiFacts) -> ApiFacts:
    """Return the facts with the expiries; of a member only that of the kubeconfig's token."""
    if facts.error:
        return facts
    endings = await _token(cluster)
    if facts.name == "hub":
        endings += await _certificates(cluster, facts.list(NAMESPACES))
    return msgspec.structs.replace(facts, endings=tuple(endings))


async def _token(cluster: Cluster) -> list[Expiry]:
    """Return when the token of the kubeconfig ends."""
    inline = cluster.config.inline_token
    ends = expiry_of(await inline.token()) if inline is not None else None
    where = cluster.config.source or cluster.server
    renew = "fairlead tenant add NAME --output FILE   for an agent; for yourself as your cluster's sign-in says"
    return [Expiry("token", where, ends, renew)] if ends is not None else []


async def _certificates(cluster: Cluster, namespaces: list[JSONObject]) -> list[Expiry]:
    names = [SYSTEM_NAMESPACE, *(name_of(each) for each in namespaces if _is_tenants(each))]
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
