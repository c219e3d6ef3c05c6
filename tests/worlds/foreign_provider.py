"""A third-party load balancer provider, which implements only the contract of Cluster API's load balancers.

    FarLoadBalancer   spec.endpoint, spec.credentialRef (its own); status as the contract has it
    owner             the LoadBalancer that it belongs to: Cluster, and the selector in its status
    members           marked active with a hook and a finalizer; released once they are being deleted

In: the URL of an API server, a token. Out: objects, polled. It imports nothing of Fairlead. Its load balancers exist in
memory only, and the status of each names the credentials that were used.
"""

from __future__ import annotations

import base64
import json
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

GROUP, VERSION, PLURAL = "infrastructure.far.example", "v1", "farloadbalancers"
_BASE = f"/apis/{GROUP}/{VERSION}"
_MARKS = "loadbalancer.cluster.x-k8s.io"
_HOOK = "pre-terminate.delete.hook.machine.cluster.x-k8s.io/far"
_FINALIZER = "far.example/member"
_OWN_FINALIZER = "far.example/load-balancer"
#: A decoded JSON object.
Obj = Any


def part(obj: Obj, *path: str) -> Any:
    """Return the value at ``path``, None when it is missing."""
    for key in path:
        obj = obj.get(key)
        if obj is None:
            return None
    return obj


class Api:
    """A client of the REST interface of an API server."""

    def __init__(self, url: str, token: str, authority: str) -> None:
        self._url = url
        self._token = token
        self._tls = ssl.create_default_context(cadata=authority) if authority else None

    def call(self, method: str, path: str, body: Obj | None = None) -> Obj:
        """Return the decoded body of the response."""
        data = json.dumps(body).encode() if body is not None else None
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/merge-patch+json"}
        request = urllib.request.Request(self._url + path, data, headers, method=method)
        with urllib.request.urlopen(request, context=self._tls, timeout=30) as answer:
            return json.load(answer)


def reconcile(api: Api, load_balancer: Obj, number: int) -> None:
    """Reconcile one load balancer with its owner."""
    meta = load_balancer["metadata"]
    namespace = meta["namespace"]
    path = f"{_BASE}/namespaces/{namespace}/{PLURAL}/{meta['name']}"
    owner = next((each for each in meta.get("ownerReferences") or () if each["kind"] == "LoadBalancer"), None)
    if owner is None:
        return
    parent = api.call("GET", f"/apis/{owner['apiVersion']}/namespaces/{namespace}/loadbalancers/{owner['name']}")
    selector = part(parent, "status", "targetSelector")
    if not selector:
        return
    deleting = "deletionTimestamp" in meta
    if not deleting and _OWN_FINALIZER not in (meta.get("finalizers") or ()):
        api.call("PATCH", path, {"metadata": {"finalizers": [_OWN_FINALIZER]}})
    if not deleting and not part(load_balancer, "spec", "endpoint", "host"):
        # The endpoint of the owner, if it is set; else a new one.
        endpoint = {"host": f"203.0.113.{number}", "port": 6443}
        api.call("PATCH", path, {"spec": {"endpoint": endpoint}})
    query = urllib.parse.urlencode({"labelSelector": selector})
    machines = f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/machines"
    active = [
        member(api, machines, each, meta["name"], deleting=deleting)
        for each in api.call("GET", f"{machines}?{query}")["items"]
    ]
    if deleting:
        api.call("PATCH", path, {"metadata": {"finalizers": None}})
        return
    good = [{"type": kind, "status": "True", "reason": "Ok"} for kind in ("LBExists", "LBMatchesConfig")]
    status = {
        "targetKind": "Machine.cluster.x-k8s.io",
        "targetSelector": selector,
        "targets": len(active),
        "activeTargets": sum(active),
        "credential": credential_of(api, load_balancer, parent, namespace),
        "conditions": good,
    }
    if {key: part(load_balancer, "status", key) for key in status} != status:
        api.call("PATCH", f"{path}/status", {"status": status})


def member(api: Api, machines: str, machine: Obj, name: str, *, deleting: bool) -> bool:
    """Mark one member, or release it; return whether it is active."""
    meta = machine["metadata"]
    annotations: dict[str, str] = meta.get("annotations") or {}
    finalizers: list[str] = meta.get("finalizers") or []
    leaving = deleting or "deletionTimestamp" in meta
    if leaving:
        wanted: Obj = {_HOOK: None, f"{_MARKS}/status": "removed"}
        kept = [each for each in finalizers if each != _FINALIZER]
    else:
        wanted = {_HOOK: "far", f"{_MARKS}/name": name, f"{_MARKS}/status": "active"}
        kept = [*finalizers, *([] if _FINALIZER in finalizers else [_FINALIZER])]
    if any(annotations.get(key) != value for key, value in wanted.items()) or kept != finalizers:
        patch = {"metadata": {"annotations": wanted, "finalizers": kept, "resourceVersion": meta["resourceVersion"]}}
        api.call("PATCH", f"{machines}/{meta['name']}", patch)
    return not leaving


def credential_of(api: Api, load_balancer: Obj, parent: Obj, namespace: str) -> str:
    """Return the name of the credentials: its own, else those of the infrastructure cluster, else the default."""
    own = part(load_balancer, "spec", "credentialRef", "name")
    if own:
        return own
    cluster = api.call(
        "GET", f"/apis/cluster.x-k8s.io/v1beta2/namespaces/{namespace}/clusters/{parent['spec']['clusterName']}"
    )
    ref = part(cluster, "spec", "infrastructureRef")
    if ref and part(ref, "apiGroup") == GROUP and part(ref, "kind") == "FarCluster":
        infrastructure = api.call("GET", f"{_BASE}/namespaces/{namespace}/farclusters/{ref['name']}")
        return part(infrastructure, "spec", "credentialRef", "name") or "default"
    return "default"


def main() -> None:
    """Serve until ended: arguments are the URL and the authority (PEM, base64; may be empty), the token is on stdin."""
    url, authority = sys.argv[1], base64.b64decode(sys.argv[2]).decode()
    api = Api(url, sys.stdin.readline().strip(), authority)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    while True:
        objects: list[Obj] = []
        try:
            objects = api.call("GET", f"{_BASE}/{PLURAL}")["items"]
        except (urllib.error.URLError, OSError) as error:
            sys.stderr.write(f"again: {error}\n")
        for number, load_balancer in enumerate(objects, 7):
            try:
                reconcile(api, load_balancer, number)
            except (urllib.error.URLError, OSError, KeyError) as error:
                sys.stderr.write(f"again: {error}\n")
        time.sleep(0.1)


if __name__ == "__main__":
    main()
