"""Ingresses and Services for the tests of the conversion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from fairlead.api.gateway import HTTPRoute, HTTPRule
from fairlead.api.kubernetes import IngressObject, Service
from fairlead.api.meta import ObjectKey
from fairlead.convert.annotations import PREFIX
from fairlead.convert.ingresses import ConvertedIngresses, convert_ingresses

GATEWAY = ObjectKey("default", "ingress")


def path(value: str = "/", service: str = "web", path_type: str = "Prefix", port: int | str = 80) -> dict[str, Any]:
    named = {"name": port} if isinstance(port, str) else {"number": port}
    return {"path": value, "pathType": path_type, "backend": {"service": {"name": service, "port": named}}}


def ingress(
    name: str = "web",
    hosts: Mapping[str, Sequence[dict[str, Any]]] | None = None,
    *,
    namespace: str = "default",
    created: str = "",
    tls: Sequence[dict[str, Any]] = (),
    default: str = "",
    **annotations: str,
) -> IngressObject:
    """Return an Ingress; annotations of ingress-nginx have _ for -."""
    hosts = {"a.example.com": [path()]} if hosts is None else hosts
    body: dict[str, Any] = {
        "metadata": {
            "name": name,
            "namespace": namespace,
            "creationTimestamp": created or None,
            "annotations": {PREFIX + key.replace("_", "-"): value for key, value in annotations.items()},
        },
        "spec": {
            "rules": [{"host": host, "http": {"paths": list(paths)}} for host, paths in hosts.items()],
            "tls": list(tls),
        },
    }
    if default:
        body["spec"]["defaultBackend"] = {"service": {"name": default, "port": {"number": 80}}}
    return msgspec.convert(body, IngressObject)


def service(name: str, *, namespace: str = "default", **ports: int) -> Service:
    listed = [{"name": key, "port": number} for key, number in ports.items()] or [{"port": 80}]
    body = {"metadata": {"name": name, "namespace": namespace}, "spec": {"ports": listed}}
    return msgspec.convert(body, Service)


def convert(*ingresses: IngressObject, services: Sequence[Service] = ()) -> ConvertedIngresses:
    return convert_ingresses(ingresses, services, gateway=GATEWAY, class_name="fairlead")


def of_kind(conversion: ConvertedIngresses, kind: str) -> list[Any]:
    return [obj for resource, obj in conversion.objects if resource.kind == kind]


def routes(conversion: ConvertedIngresses) -> dict[str, HTTPRoute]:
    return {route.metadata.name: route for route in of_kind(conversion, "HTTPRoute")}


def rules(conversion: ConvertedIngresses, name: str = "web") -> list[HTTPRule]:
    return list(routes(conversion)[name].spec.rules or ())


def remarks(conversion: ConvertedIngresses, *, lost: bool = True) -> list[str]:
    """Return what is lost, or what is only noted, as 'what: message'."""
    return [f"{each.what}: {each.message}" for each in conversion.remarks if each.lost is lost]
