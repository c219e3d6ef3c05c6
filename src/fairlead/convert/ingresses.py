"""Ingresses as objects of Gateway API, with remarks on what these cannot express.

In: Ingresses of any namespaces, the Services that are known, where the Gateway shall be. Out: objects in the order in
which they are applied, and remarks. Pure; nothing depends on the order of the input.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from operator import attrgetter

import msgspec

from fairlead.api.gateway import (
    BACKEND_TLS_POLICIES,
    GATEWAYS,
    HTTP_ROUTES,
    LISTENER_SETS,
    REFERENCE_GRANTS,
    TLS_ROUTES,
    BackendTLSPolicy,
)
from fairlead.api.kubernetes import IngressObject, Service
from fairlead.api.meta import AnyResource, KubeObject, ObjectKey
from fairlead.api.names import fit
from fairlead.convert.accepted import accepted_part, problem_of
from fairlead.convert.annotations import Remark, Remarks, flag_of, nginx_annotations
from fairlead.convert.listeners import Listeners, check_protocol, tls_policy
from fairlead.convert.nginx import (
    ConvertedPath,
    NginxSettings,
    PathOfHost,
    convert_path,
    needs_regex,
    overtaking,
    read_settings,
)
from fairlead.convert.routes import (
    NAME_LIMIT,
    Canary,
    IngressInput,
    PathKey,
    convert_routes,
    hosts_of,
    path_key,
    paths_of,
)
from fairlead.errors import BadConfiguration

_RESOURCES: tuple[AnyResource, ...] = (
    GATEWAYS, LISTENER_SETS, REFERENCE_GRANTS, HTTP_ROUTES, TLS_ROUTES, BACKEND_TLS_POLICIES
)  # fmt: skip
_BY_TYPE: Mapping[type[KubeObject], AnyResource] = {each.type: each for each in _RESOURCES}


class ConvertedIngresses(msgspec.Struct, frozen=True):
    """The objects, each with its resource, and the remarks about them."""

    objects: tuple[tuple[AnyResource, KubeObject], ...]
    remarks: tuple[Remark, ...]

    @property
    def lossless(self) -> bool:
        """Return whether the objects do everything that the Ingresses did."""
        return not any(remark.lost for remark in self.remarks)


def convert_ingresses(
    ingresses: Iterable[IngressObject], services: Iterable[Service], *, gateway: ObjectKey, class_name: str
) -> ConvertedIngresses:
    """Return ``ingresses`` converted to Gateway API, with remarks; an API server takes each of the objects.

    Raises:
        BadConfiguration: the name of the Gateway or of its class cannot be one.
    """
    remarks = Remarks()
    in_order = sorted(ingresses, key=attrgetter("age_order"))
    by_key = {each.key: each for each in services}
    annotations = {each.key: nginx_annotations(each, remarks) for each in in_order}
    mains = [each for each in in_order if not flag_of(annotations[each.key], "canary")]
    canaries = _canaries([each for each in in_order if each not in mains], annotations, mains, remarks)
    taken = _taken(mains)
    regex_hosts = _regex_hosts(mains, annotations)
    paths = _paths(mains, annotations, taken, regex_hosts, remarks)
    views = [
        IngressInput(
            ingress=each,
            annotations=annotations[each.key],
            settings=_without_hosts_of_others(
                each, read_settings(each, annotations[each.key], remarks), taken, remarks
            ),
            services=by_key,
            canaries=canaries.get(each.metadata.namespace, {}),
            taken=taken,
            paths=paths[each.key],
            regex_hosts=regex_hosts,
        )
        for each in mains
    ]
    passed_through = {view.ingress.key for view in views if view.settings.passthrough}
    listeners = Listeners(mains, passed_through, gateway=gateway, class_name=class_name, remarks=remarks)
    objects: list[KubeObject] = [*listeners.objects()] if mains else []
    for each in objects:
        if problem := problem_of(_BY_TYPE[type(each)], each):
            raise BadConfiguration(f"{_BY_TYPE[type(each)].kind} {each.key}: {problem}")
    policies: dict[ObjectKey, KubeObject] = {}
    for view in views:
        routes = convert_routes(view, listeners, remarks)
        objects += filter(None, (accepted_part(view.ingress, _BY_TYPE[type(each)], each, remarks) for each in routes))
        for policy in _policies(view, remarks):
            if accepted_part(view.ingress, BACKEND_TLS_POLICIES, policy, remarks) is not None:
                policies[policy.key] = policy
    return ConvertedIngresses(tuple(_addressed([*objects, *policies.values()])), remarks.all())


def _regex_hosts(mains: Iterable[IngressObject], annotations: Mapping[ObjectKey, Mapping[str, str]]) -> frozenset[str]:
    return frozenset(
        host
        for each in mains
        for host, paths in hosts_of(each).items()
        if any(needs_regex(path, annotations[each.key]) for path in paths)
    )


def _paths(
    mains: Sequence[IngressObject],
    annotations: Mapping[ObjectKey, Mapping[str, str]],
    taken: Mapping[PathKey, IngressObject],
    regex_hosts: Collection[str],
    remarks: Remarks,
) -> dict[ObjectKey, dict[PathKey, ConvertedPath]]:
    """Return the converted paths of each Ingress; those that would take requests from another path are left out."""
    paths: dict[ObjectKey, dict[PathKey, ConvertedPath]] = {each.key: {} for each in mains}
    by_host: dict[str, list[tuple[PathKey, PathOfHost]]] = {}
    for each in mains:
        for host, listed in hosts_of(each).items():
            for path in listed:
                key = path_key(host, path)
                if taken[key].key != each.key or key in paths[each.key]:
                    continue
                regex = host in regex_hosts
                converted = convert_path(each, path, annotations[each.key], remarks, regex=regex)
                if converted is not None:
                    paths[each.key][key] = converted
                if converted is not None and regex:
                    by_host.setdefault(host, []).append((key, PathOfHost(each.key, path.path or "/", converted)))
    for entries in by_host.values():
        keys = {id(entry): key for key, entry in entries}
        for later, first in overtaking([entry for _, entry in entries]):
            key = keys[id(later)]
            why = f"nginx tries {first.value} of Ingress {first.ingress} before, a Gateway after; the path is left out"
            remarks.lost(taken[key], f"path {later.value}", why)
            del paths[later.ingress][key]
    return paths


def _without_hosts_of_others(
    ingress: IngressObject, settings: NginxSettings, taken: Mapping[PathKey, IngressObject], remarks: Remarks
) -> NginxSettings:
    """Return the settings without an alias that is a host with rules of its own: nginx ignores it."""
    hosts = {host for host, _, _ in taken}
    for alias in settings.aliases:
        if alias in hosts:
            remarks.note(ingress, f"server-alias {alias}", "an Ingress has rules for the host; nginx ignores the alias")
    return msgspec.structs.replace(settings, aliases=tuple(each for each in settings.aliases if each not in hosts))


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
    # Of connections that are passed through, the client speaks TLS with the backend.
    if view.settings.passthrough or not check_protocol(view.ingress, view.annotations, remarks):
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
            name = fit(f"{meta.name}.{number}", limit=NAME_LIMIT) if number > 1 else meta.name
            yield resource, msgspec.structs.replace(each, metadata=msgspec.structs.replace(meta, name=name))
