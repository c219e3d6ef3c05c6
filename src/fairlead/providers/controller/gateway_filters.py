"""The filters of a rule or backend in Gateway API's words. In: ``Filters``. Out: entries of ``filters``. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from fairlead.api.meta import JSONObject
from fairlead.model.http import Cors, Filters, HeaderModifier, PathModifier, Redirect, Rewrite

_PATH_FIELDS = {"ReplaceFullPath": "replaceFullPath", "ReplacePrefixMatch": "replacePrefixMatch"}


def filters(of: Filters, service_ref: Callable[[str], JSONObject]) -> list[JSONObject]:
    """Return what ``of`` does; ``service_ref`` says how a backend is referred to."""
    return list(_filters(of, service_ref))


def _filters(of: Filters, service_ref: Callable[[str], JSONObject]) -> Iterator[JSONObject]:
    if of.request_headers is not None:
        yield {"type": "RequestHeaderModifier", "requestHeaderModifier": _headers(of.request_headers)}
    if of.response_headers is not None:
        yield {"type": "ResponseHeaderModifier", "responseHeaderModifier": _headers(of.response_headers)}
    if of.redirect is not None:
        yield {"type": "RequestRedirect", "requestRedirect": _redirect(of.redirect)}
    if of.rewrite is not None:
        yield {"type": "URLRewrite", "urlRewrite": _rewrite(of.rewrite)}
    for mirror in of.mirrors:
        if mirror.backend:
            part: JSONObject = {"backendRef": service_ref(mirror.backend)}
            if mirror.numerator != mirror.denominator:
                part["fraction"] = {"numerator": mirror.numerator, "denominator": mirror.denominator}
            yield {"type": "RequestMirror", "requestMirror": part}
    if of.cors is not None:
        yield {"type": "CORS", "cors": _cors(of.cors)}


def _headers(of: HeaderModifier) -> JSONObject:
    part: JSONObject = {}
    if of.set:
        part["set"] = [{"name": each.name, "value": each.value} for each in of.set]
    if of.add:
        part["add"] = [{"name": each.name, "value": each.value} for each in of.add]
    if of.remove:
        part["remove"] = list(of.remove)
    return part


def _redirect(of: Redirect) -> JSONObject:
    part: JSONObject = {"statusCode": of.status_code}
    part |= {name: value for name, value in (("scheme", of.scheme), ("hostname", of.hostname)) if value}
    if of.port:
        part["port"] = of.port
    if of.path is not None:
        part["path"] = _path(of.path)
    return part


def _rewrite(of: Rewrite) -> JSONObject:
    part: JSONObject = {"hostname": of.hostname} if of.hostname else {}
    if of.path is not None:
        part["path"] = _path(of.path)
    return part


def _path(of: PathModifier) -> JSONObject:
    return {"type": of.type, _PATH_FIELDS[of.type]: of.value}


def _cors(of: Cors) -> JSONObject:
    lists: JSONObject = {
        name: list(values)
        for name, values in msgspec.to_builtins(of).items()
        if isinstance(values, (list, tuple)) and values
    }
    return lists | {"maxAge": of.max_age} | ({"allowCredentials": True} if of.allow_credentials else {})
