"""LoadBalancers, BackendGroups, nodes and pods as a cache holds them, and views of them, in the fewest words."""

from __future__ import annotations

import msgspec

from fairlead.api.backendgroup import BackendGroup
from fairlead.api.kubernetes import Node, Pod, Service
from fairlead.api.loadbalancer import LoadBalancer
from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.model.condition import ConditionType
from fairlead.model.keys import LoadBalancerKey
from fairlead.testing.builders import ABLE, decoded
from fairlead.translate.view import LoadBalancerView

KEY = LoadBalancerKey("LoadBalancer", "shop", "shared")
CAPABLE = msgspec.structs.replace(ABLE, class_parameters=frozenset({"socket", "timeout."}))


def class_(parameters=None, *, metadata=None, **spec):
    meta = {"name": "edge", **(metadata or {})}
    body = {"metadata": meta, "spec": {"provider": "p", "parameters": parameters or {}, **spec}}
    return decoded(body, LoadBalancerClass)


def lb(**spec):
    spec = {"className": "edge", "listeners": [{"port": 80}], **spec}
    meta = {"name": "shared", "namespace": "shop", "uid": "u", "generation": 2}
    return decoded({"metadata": meta, "spec": spec}, LoadBalancer)


def group(name="web", *, parameters=None, **spec):
    spec = {"loadBalancers": ["shared"], "parameters": parameters or {}, **(spec or {"static": ["10.0.0.1:8080"]})}
    return decoded({"metadata": {"name": name, "namespace": "shop"}, "spec": spec}, BackendGroup)


def view(load_balancer=None, load_balancer_class=None, groups=(), **fields):
    return LoadBalancerView(
        KEY, load_balancer or lb(), load_balancer_class or class_(), {"p": CAPABLE}, tuple(groups), **fields
    )


def accepted(translation):
    return next(item for item in translation.conditions if item.type is ConditionType.ACCEPTED)


def node(name, address, *, ready=True, **labels):
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    status = {"addresses": [{"type": "InternalIP", "address": address}], "conditions": conditions}
    return decoded({"metadata": {"name": name, "labels": labels}, "status": status}, Node)


SERVICE = decoded(
    {"metadata": {"name": "web", "namespace": "shop"}, "spec": {"ports": [{"port": 80, "nodePort": 30200}]}}, Service
)


def pod(name, address, *, ready=True, phase="Running", deleting=False, **labels):
    meta = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "labels": labels}
    if deleting:
        meta["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
    return decoded({"metadata": meta, "status": {"podIP": address, "phase": phase, "conditions": conditions}}, Pod)
