"""The objects that the hub makes for another controller: identity, names, and a digest for comparison.

In: load balancers, backends, specs of objects. Out: objects as JSON with their resource. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b

import msgspec

from fairlead.api.meta import AnyResource, JSONObject, KubeObject
from fairlead.api.names import (
    ANNOTATION_APPLIED,
    ANNOTATION_BACKEND,
    LABEL_MADE_FOR,
    LABEL_MANAGED_BY,
    MANAGED_BY,
    label_value,
    short_hash,
)
from fairlead.model.keys import LoadBalancerKey
from fairlead.model.observed import RefusedPart

_ENCODER = msgspec.json.Encoder(order="deterministic")
_NOT_IN_LABELS = re.compile(r"[^a-z0-9]+")
_HEAD = 40
_WHOLE_KEY = 3


class Made(msgspec.Struct, frozen=True):
    """One object to be applied; ``route`` is the route of the load balancer that it is for, if it is for one."""

    resource: AnyResource
    body: JSONObject
    route: str = ""

    @property
    def name(self) -> str:
        """Return its name; the namespace is that of the load balancer."""
        return str(self.body["metadata"]["name"])

    @property
    def digest(self) -> str:
        """Return the digest that the object carries."""
        return str(self.body["metadata"]["annotations"][ANNOTATION_APPLIED])


class Rendered(msgspec.Struct, frozen=True):
    """The objects that another controller is to serve: its objects, and the parts that those objects cannot express."""

    objects: tuple[Made, ...]
    refused: tuple[RefusedPart, ...] = ()

    def without(self, refused: Mapping[str, str]) -> Rendered:
        """Return all but the routes that the cluster refuses, by name with the reason."""
        kept = tuple(each for each in self.objects if each.route not in refused)
        parts = tuple(RefusedPart("route", name, reason) for name, reason in sorted(refused.items()))
        return Rendered(kept, (*self.refused, *parts))


def dns_name(text: str, *identity: str) -> str:
    """Return a DNS label of at most 63 characters, readable by ``text`` and unique by ``identity``."""
    readable = _NOT_IN_LABELS.sub("-", text.lower()).strip("-")[:_HEAD].strip("-")
    head = readable if readable[:1].isalpha() else f"b-{readable}"
    return f"{head.rstrip('-')}-{short_hash(*identity)}"


def service_name(load_balancer: LoadBalancerKey, backend: str) -> str:
    """Name the Service of one backend."""
    return dns_name(backend, *load_balancer, backend)


def made(
    resource: AnyResource,
    load_balancer: LoadBalancerKey,
    name: str,
    parts: JSONObject,
    *,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
    backend: str = "",
    route: str = "",
) -> Made:
    """Return an object with our marks; ``parts`` are its fields beside metadata, ``backend`` whose it is, if any."""
    own = {LABEL_MADE_FOR: "/".join(load_balancer)} | ({ANNOTATION_BACKEND: backend} if backend else {})
    metadata: JSONObject = {
        "name": name,
        "namespace": load_balancer.namespace,
        "labels": {**(labels or {}), LABEL_MANAGED_BY: MANAGED_BY, LABEL_MADE_FOR: label_value(load_balancer.name)},
        "annotations": {**(annotations or {}), **own},
    }
    body: JSONObject = {"apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata, **parts}
    metadata["annotations"][ANNOTATION_APPLIED] = blake2b(_ENCODER.encode(body), digest_size=10).hexdigest()
    return Made(resource, body, route)


def made_for(obj: KubeObject) -> LoadBalancerKey | None:
    """Return the load balancer that an object was made for, None when it is not ours."""
    parts = obj.annotation(LABEL_MADE_FOR).split("/")
    ours = obj.label(LABEL_MANAGED_BY) == MANAGED_BY and len(parts) == _WHOLE_KEY
    return LoadBalancerKey(*parts) if ours else None


def selector(load_balancer: LoadBalancerKey) -> str:
    """Return the label selector of all that was made for a load balancer, and maybe for another of a similar name."""
    return f"{LABEL_MANAGED_BY}={MANAGED_BY},{LABEL_MADE_FOR}={label_value(load_balancer.name)}"
