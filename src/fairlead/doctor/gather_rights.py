"""The rights that an account lacks in a cluster: that of the hub or agent, or the kubeconfig's own user.

In: a connection, the account's name and what it needs. Out: ``Denied`` for each right that is refused. An account is
asked about by SubjectAccessReview, which an administrator may do; without one, the kubeconfig's own user is.
Never: a change; reviews store nothing.
Source: https://kubernetes.io/docs/reference/access-authn-authz/authorization/
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import msgspec

from fairlead.agent.checks import gateway_needs, ingress_needs, member_needs
from fairlead.api.kubernetes import SERVICE_ACCOUNTS
from fairlead.api.meta import JSONObject
from fairlead.api.names import SYSTEM_NAMESPACE
from fairlead.doctor.facts import ApiFacts, Denied
from fairlead.errors import FairleadError
from fairlead.kube.cluster import Cluster
from fairlead.kube.preflight import AccessNeed
from fairlead.standalone.hub_rights import hub_needs

_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class _Allowed(msgspec.Struct):
    class Status(msgspec.Struct):
        allowed: bool = False

    status: Status = msgspec.field(default_factory=Status)


async def with_rights(cluster: Cluster, side: ApiFacts, *, gateways: bool) -> ApiFacts:
    """Return the side with what its account lacks; with a reason in ``unread`` when that could not be asked."""
    if side.error:
        return side
    account = "fairlead-hub" if side.name == "hub" else "fairlead-agent"
    try:
        has_account = await _exists(cluster, account)
        needs = _needs(side.name, deployment=has_account, gateways=gateways)
        answers = await asyncio.gather(*(_allowed(cluster, need, account if has_account else "") for need in needs))
    except FairleadError as error:
        unread = {**side.unread, "subjectaccessreviews.authorization.k8s.io": error.sentence}
        return msgspec.structs.replace(side, unread=unread)
    subject = f"service account {SYSTEM_NAMESPACE}/{account}" if has_account else "the user of the kubeconfig"
    denied = tuple(_denied(subject, need) for need, allowed in zip(needs, answers, strict=True) if not allowed)
    return msgspec.structs.replace(side, denied=denied)


def _needs(side: str, *, deployment: bool, gateways: bool) -> Sequence[AccessNeed]:
    if side == "hub":
        return hub_needs(deployment=deployment)
    with_gateways = gateway_needs() if gateways else []
    return [*member_needs(system_namespace=SYSTEM_NAMESPACE), *ingress_needs(), *with_gateways]


async def _exists(cluster: Cluster, account: str) -> bool:
    accounts = await cluster.list(SERVICE_ACCOUNTS, SYSTEM_NAMESPACE)
    return account in {each.metadata.name for each in accounts}


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
