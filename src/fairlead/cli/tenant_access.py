"""The access of a member to the hub: its checked name, its service account and the kubeconfig."""

from __future__ import annotations

import re
import sys
from urllib.parse import urlsplit

import msgspec
import yaml

from fairlead.api.kubernetes import SERVICE_ACCOUNTS
from fairlead.api.meta import JSONObject
from fairlead.api.names import AGENT_SERVICE_ACCOUNT, TENANT_NAMESPACE_PREFIX
from fairlead.api.naming import region_problem
from fairlead.api.times import seconds_from_duration
from fairlead.errors import BadConfiguration
from fairlead.kube.cluster import Cluster
from fairlead.kube.service_account_token import request_token
from fairlead.standalone.await_hub import ensure_place

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_NAME_MAX = 63 - len(TENANT_NAMESPACE_PREFIX)
_DAY_S = 86_400
#: No API server issues tokens for less, and more was never allowed here.
_SHORTEST_S, _LONGEST_S = 600, 3650 * _DAY_S


class Access(msgspec.Struct, frozen=True):
    """A kubeconfig (YAML), the namespace it is for, and until when its token is valid (RFC 3339)."""

    kubeconfig: str
    namespace: str
    expires: str


def check_name(name: str, region: str) -> None:
    """Refuse names that Kubernetes would refuse, before anything is created."""
    if not _LABEL.fullmatch(name) or len(name) > _NAME_MAX:
        raise BadConfiguration(
            f"NAME: {name!r} cannot name a tenant; use lower-case letters, digits and dashes, at most {_NAME_MAX}"
        )
    if region and (problem := region_problem(region)):
        raise BadConfiguration(problem)


def check_server(server: str) -> None:
    """Refuse what no agent could ever reach."""
    parts = urlsplit(server)
    if server and (parts.scheme not in ("https", "http") or not parts.hostname):
        raise BadConfiguration(f"--server: {server!r} is not a URL such as https://hub.example.com:6443")


def validity_s(valid_for: str, valid_days: int | None) -> int:
    """Return for how many seconds a token is asked for; ``valid_days`` is how it was said before ``valid_for``.

    Raises:
        BadConfiguration: it is no duration, or none that an API server admits.
    """
    if valid_days is not None:
        sys.stderr.write(f"Warning: --valid-days is the earlier name; use --valid-for {valid_days * 24}h.\n")
        return valid_days * _DAY_S
    try:
        seconds = int(seconds_from_duration(valid_for.strip()))
    except ValueError as error:
        raise BadConfiguration(f"--valid-for: {valid_for!r} is not a duration such as 24h or 90m") from error
    if not _SHORTEST_S <= seconds <= _LONGEST_S:
        raise BadConfiguration(f"--valid-for: {valid_for!r} is not between 10m and {_LONGEST_S // 3600}h")
    return seconds


async def issue_access(
    cluster: Cluster, *, name: str, region: str, valid_s: int, server: str, trust: JSONObject
) -> Access:
    """Create what is missing for the tenant and return a fresh key for its agent; ``trust`` is the hub's authority."""
    tenant = await ensure_place(cluster, name, region=region)
    token = await request_token(cluster, tenant.namespace, AGENT_SERVICE_ACCOUNT, valid_s=valid_s)
    return Access(
        kubeconfig=_kubeconfig_yaml(name, tenant.namespace, server or cluster.server, trust, token.token),
        namespace=tenant.namespace,
        expires=token.expiration_timestamp,
    )


async def end_keys(cluster: Cluster, namespace: str) -> None:
    """End every token of the tenant's agent: they are bound to the account, which is made anew."""
    await cluster.delete(SERVICE_ACCOUNTS, namespace, AGENT_SERVICE_ACCOUNT)


def _kubeconfig_yaml(tenant: str, namespace: str, server: str, trust: JSONObject, token: str) -> str:
    document: JSONObject = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "hub", "cluster": {"server": server, **trust}}],
        "users": [{"name": tenant, "user": {"token": token}}],
        "contexts": [{"name": tenant, "context": {"cluster": "hub", "user": tenant, "namespace": namespace}}],
        "current-context": tenant,
    }
    return yaml.safe_dump(document, sort_keys=False, width=10_000)
