"""Ingresses as objects of Gateway API, with remarks on what these cannot express.

In: Ingresses of any namespaces, the Services that are known, where the Gateway shall be. Out: objects in the order in
which they are applied, and remarks. Pure; nothing depends on the order of the input.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter

import msgspec

from fairlead.api.gateway import GATEWAYS, LISTENER_SETS
from fairlead.api.gateway_policies import BACKEND_TLS_POLICIES, REFERENCE_GRANTS, BackendTLSPolicy
from fairlead.api.gateway_routes import HTTP_ROUTES, TLS_ROUTES
from fairlead.api.ingress import IngressObject
from fairlead.api.kubernetes import Service
from fairlead.api.meta import AnyResource, KubeObject, ObjectKey
from fairlead.convert.annotations import nginx_annotations
from fairlead.convert.backends import check_protocol, tls_policy
from fairlead.convert.listeners import Listeners
from fairlead.convert.nginx import read_settings
from fairlead.convert.remarks import Remark, Remarks
from fairlead.convert.routes import Canary, IngressInput, PathKey, convert_routes, hosts_of, path_key, paths_of

_RESOURCES: tuple[AnyResource, ...] = (
    GATEWAYS, LISTENER_SETS, REFERENCE_GRANTS, HTTP_ROUTES, TLS_ROUTES, BACKEND_TLS_POLICIES
)  # fmt: skip


class ConvertedIngresses(msgspec.Struct, frozen=True):
    """The objects, each with how it is addressed, and what is said about them."""

    objects: tuple[tuple[AnyResource, KubeObject], ...]
    remarks: tuple[Remark, ...]

    @property
    def lossless(self) -> bool:
        """Return whether the objects do all that the Ingresses did."""
        return not any(remark.lost for remark in self.remarks)


def convert_ingresses(
    ingresses: Iterable[IngressObject], services: Iterable[Service], *, gateway: ObjectKey, class_name: str
) -> ConvertedIngresses:
    """Return ``ingresses`` converted to Gateway API, with remarks."""
    remarks = Remarks()
    in_order = sorted(ingresses, key=attrgetter("age_order"))
    by_key = {each.key: each for each in services}
    annotations = {each.key: nginx_annotations(each, remarks) for each in in_order}
    mains = [each for each in in_order if annotations[each.key].get("canary") != "true"]
    canaries = _canaries([each for each in in_order if each not in mains], annotations, mains, remarks)
    taken = _taken(mains)
    views = [
        IngressInput(
            ingress=each,
            annotations=annotations[each.key],
            settings=read_settings(each, annotations[each.key], remarks),
            services=by_key,
            canaries=canaries.get(each.metadata.namespace, {}),
            taken=taken,
        )
        for each in mains
    ]
    passed_through = {view.ingress.key for view in views if view.settings.passthrough}
    listeners = Listeners(mains, passed_through, gateway=gateway, class_name=class_name, remarks=remarks)
    objects: list[KubeObject] = [*listeners.objects()] if mains else []
    for view in views:
        objects += convert_routes(view, listeners, remarks)
    policies = {policy.key: policy for view in views for policy in _policies(view, remarks)}
    return ConvertedIngresses(tuple(_addressed([*objects, *policies.values()])), remarks.all())


def _taken(mains: Iterable[IngressObject]) -> dict[PathKey, IngressObject]:
    """Return the oldest Ingress of each path."""
    taken: dict[PathKey, IngressObject] = {}
    for ingress in mains:
        for key in paths_of(ingress):
            taken.setdefault(key, ingress)
    return taken


def _canaries(
    canaries: Sequence[IngressObject],
    annotations: dict[ObjectKey, dict[str, str]],
    mains: Sequence[IngressObject],
    remarks: Remarks,
) -> dict[str, dict[PathKey, list[Canary]]]:
    """Return the canaries by namespace and path; one without a path to be a canary of is a remark."""
    main_paths = {(each.metadata.namespace, key) for each in mains for key in paths_of(each)}
    by_namespace: dict[str, dict[PathKey, list[Canary]]] = {}
    for ingress in canaries:
        namespace = ingress.metadata.namespace
        for host, paths in hosts_of(ingress).items():
            for path in paths:
                key = path_key(host, path)
                if (namespace, key) not in main_paths:
                    why = "no Ingress that is not a canary has this path; it is left out"
                    remarks.lost(ingress, f"canary of {host}{path.path}", why)
                    continue
                canary = Canary(ingress, annotations[ingress.key], path.backend)
                by_namespace.setdefault(namespace, {}).setdefault(key, []).append(canary)
    return by_namespace


def _policies(view: IngressInput, remarks: Remarks) -> Iterator[BackendTLSPolicy]:
    if not check_protocol(view.ingress, view.annotations, remarks):
        return
    default = view.ingress.spec.default_backend
    backends = [path.backend for paths in hosts_of(view.ingress).values() for path in paths]
    named = [each.service.name for each in (*backends, *([default] if default else [])) if each.service is not None]
    for service in dict.fromkeys(named):
        yield tls_policy(view.ingress, service, view.annotations, remarks)


def _addressed(objects: Iterable[KubeObject]) -> Iterator[tuple[AnyResource, KubeObject]]:
    """Yield objects with their resources, ordered by kind; of two with one name, the later one gets a number."""
    by_type: dict[type[KubeObject], list[KubeObject]] = {}
    for each in objects:
        by_type.setdefault(type(each), []).append(each)
    for resource in _RESOURCES:
        seen: dict[ObjectKey, int] = {}
        for each in by_type.get(resource.type, ()):
            number = seen[each.key] = seen.get(each.key, 0) + 1
            meta = each.metadata
            name = f"{meta.name}.{number}" if number > 1 else meta.name
            yield resource, msgspec.structs.replace(each, metadata=msgspec.structs.replace(meta, name=name))
