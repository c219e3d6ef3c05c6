"""A layer 2 of another project: standard library only, and no knowledge but of the PoolService CRD.

It gives every PoolService of its class an address, counts the backends that the object itself carries, and puts a
finalizer of its own on it. It polls, which is the simplest thing that can work.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import urllib.error
import urllib.request
from typing import Any

API, CLASS, FINALIZER = os.environ["API"], os.environ["CLASS"], "example.com/lb"
ROOT = "/apis/fairlead.dev/v1alpha1"


def call(method: str, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
    request = urllib.request.Request(API + path, method=method, data=json.dumps(body).encode() if body else None)
    request.add_header("Authorization", os.environ["AUTHORIZATION"])
    request.add_header("Content-Type", "application/merge-patch+json" if method == "PATCH" else "application/json")
    with urllib.request.urlopen(request, timeout=5) as answer:
        return json.load(answer)


def path_of(obj: dict[str, Any]) -> str:
    meta = obj["metadata"]
    return f"{ROOT}/namespaces/{meta['namespace']}/poolservices/{meta['name']}"


def reconcile(obj: dict[str, Any], addresses: dict[str, str]) -> None:
    meta, finalizers = obj["metadata"], obj["metadata"].get("finalizers", [])
    if meta.get("deletionTimestamp"):
        if FINALIZER in finalizers:  # here a cloud's load balancer would be deleted
            call("PATCH", path_of(obj), {"metadata": {"finalizers": [f for f in finalizers if f != FINALIZER]}})
        return
    if FINALIZER not in finalizers:
        call("PATCH", path_of(obj), {"metadata": {"finalizers": [*finalizers, FINALIZER]}})
    backends = json.loads(meta["annotations"]["fairlead.dev/backends"])
    endpoints = [endpoint for group in backends.get("groups", []) for endpoint in group["endpoints"]]
    ready = sum(endpoint["ready"] for endpoint in endpoints)
    address = addresses.setdefault(meta["name"], f"203.0.113.{len(addresses) + 1}")
    condition = {
        "type": "Programmed", "status": "True", "reason": "Ensured", "message": "",
        "lastTransitionTime": "2030-01-01T00:00:00Z",
    }  # fmt: skip
    status = {
        "address": address,
        "targets": f"{ready}/{len(endpoints)}",
        "loadBalancer": {"ingress": [{"ip": address}]},
        "aggregateToAnnotations": {"elb-id": f"elb-{meta['name']}"},
        "conditions": [condition],
    }
    if all(obj.get("status", {}).get(key) == value for key, value in status.items() if key != "conditions"):
        return
    call("PATCH", path_of(obj) + "/status", {"status": status})
    event = {
        "metadata": {"namespace": meta["namespace"], "name": f"{meta['name']}.{time.time_ns():x}"},
        "involvedObject": {"kind": "PoolService", **{key: meta[key] for key in ("namespace", "name", "uid")}},
        "type": "Normal", "reason": "Ensured", "message": f"ELB ready at {address}", "source": {"component": "elb"},
    }  # fmt: skip
    call("POST", f"/api/v1/namespaces/{meta['namespace']}/events", event)


def main() -> None:
    addresses: dict[str, str] = {}
    while True:
        for each in sorted(call("GET", ROOT + "/poolservices")["items"], key=lambda item: item["metadata"]["name"]):
            if each["spec"].get("loadBalancerClass") == CLASS:
                with contextlib.suppress(urllib.error.HTTPError):
                    reconcile(each, addresses)
        time.sleep(0.05)


if __name__ == "__main__":
    main()
