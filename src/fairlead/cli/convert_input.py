"""Read Ingresses, and the Services that they name, from files, from stdin or from a cluster.

In: file names, or a connection. Out: typed objects. Lists and several documents in a file are read; other kinds are
passed over. Never: a guess at what cannot be decoded; ``BadConfiguration`` names the file and the object.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Hashable, Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import yaml

from fairlead.api.kubernetes import INGRESSES, SERVICES, IngressObject, Service
from fairlead.api.meta import JSONObject, KubeObject, ObjectKey
from fairlead.errors import BadConfiguration
from fairlead.kube.cluster import Cluster

_STDIN = "-"


class _Loader(yaml.SafeLoader):
    """A loader that rejects a duplicate key, whose first value would be lost, as kubectl does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.value in keys:
                raise yaml.constructor.ConstructorError(None, None, f"key {key.value} is a duplicate", key.start_mark)
            keys.add(str(key.value))
        return super().construct_mapping(node, deep=deep)


class ConvertInput(NamedTuple):
    """The Ingresses to convert, and the Services that are known."""

    ingresses: list[IngressObject]
    services: list[Service]


def read_files(names: Iterable[str], namespace: str) -> ConvertInput:
    """Read files, ``-`` for stdin; an object without a namespace is in ``namespace``."""
    ingresses: dict[ObjectKey, IngressObject] = {}
    services: dict[ObjectKey, Service] = {}
    files: dict[tuple[str, ObjectKey], str] = {}
    for name in names:
        text = sys.stdin.read() if name == _STDIN else Path(name).read_text(encoding="utf-8")
        for body in _bodies(name, text):
            kind = (body.get("apiVersion"), body.get("kind"))
            if kind == (INGRESSES.api_version, INGRESSES.kind):
                _add(ingresses, _decoded(name, body, IngressObject, namespace), INGRESSES.kind, name, files)
            elif kind == (SERVICES.api_version, SERVICES.kind):
                _add(services, _decoded(name, body, Service, namespace), SERVICES.kind, name, files)
            elif body.get("kind") == INGRESSES.kind:
                raise BadConfiguration(
                    f"{name}: an Ingress of {body.get('apiVersion')}; only {INGRESSES.api_version} is read"
                )
    return ConvertInput([*ingresses.values()], [*services.values()])


def _add(
    objects: dict[ObjectKey, Any], obj: KubeObject, kind: str, file: str, files: dict[tuple[str, ObjectKey], str]
) -> None:
    """Add an object of ``file`` to those of its kind; ``files`` maps each to where it is."""
    if (first := files.setdefault((kind, obj.key), file)) and obj.key in objects:
        where = "twice" if first == file else f"in {first} too"
        raise BadConfiguration(f"{file}: {kind} {obj.key} is {where}: rename one of the two, or leave it out")
    objects[obj.key] = obj


async def read_api(cluster: Cluster, namespace: str) -> ConvertInput:
    """Read a namespace, or with an empty name all of them."""
    ingresses, services = await asyncio.gather(cluster.list(INGRESSES, namespace), cluster.list(SERVICES, namespace))
    return ConvertInput(ingresses, services)


def _bodies(name: str, text: str) -> Iterator[JSONObject]:
    try:
        documents = [each for each in yaml.load_all(text, Loader=_Loader) if each is not None]
    except yaml.YAMLError as error:
        raise BadConfiguration(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    for document in documents:
        yield from _objects(name, document)


def _objects(name: str, document: Any) -> Iterator[JSONObject]:
    if not isinstance(document, dict):
        raise BadConfiguration(f"{name}: a document is not an object with apiVersion and kind")
    body = cast("JSONObject", document)
    if str(body.get("kind", "")).endswith("List") and isinstance(body.get("items"), list):
        for item in cast("list[Any]", body["items"]):
            yield from _objects(name, item)
    else:
        yield body


def _decoded(name: str, body: JSONObject, kind: type[Any], namespace: str) -> Any:
    metadata: JSONObject = body.get("metadata") or {}
    title = f"{body['kind']} {metadata.get('name', '')}".strip()
    try:
        # YAML reads a timestamp as a date; the wire type has its text.
        plain = msgspec.json.decode(msgspec.json.encode(body))
        decoded = msgspec.convert(plain, kind)
    except (msgspec.ValidationError, TypeError) as error:
        raise BadConfiguration(f"{name}: {title}: {error}") from error
    if not decoded.metadata.name:
        raise BadConfiguration(f"{name}: {title} has no metadata.name")
    if decoded.metadata.namespace:
        return decoded
    meta = msgspec.structs.replace(decoded.metadata, namespace=namespace)
    return msgspec.structs.replace(decoded, metadata=meta)
