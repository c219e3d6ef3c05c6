"""``fairlead convert`` and ``fairlead crds``: Ingresses as objects of Gateway API, and our definitions as YAML.

Ingresses, and the Services that they name, are read from files, from stdin or from a cluster. Lists and several
documents in a file are read; other kinds are passed over. Never: a guess at what cannot be decoded;
``BadConfiguration`` names the file and the object.
"""

from __future__ import annotations

import asyncio
import sys
import textwrap
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import yaml

from fairlead.api.kubernetes import ANNOTATION_LEGACY_CLASS, INGRESSES, SERVICES, IngressObject, Service
from fairlead.api.meta import JSONObject, KubeObject, ObjectKey
from fairlead.cli.hub_reader import connect
from fairlead.cli.options import Output
from fairlead.cli.output import encoded
from fairlead.cli.run import ATTENTION, OK
from fairlead.convert.annotations import Remark
from fairlead.convert.ingresses import ConvertedIngresses, body_of, convert_ingresses
from fairlead.errors import BadConfiguration, NotFound
from fairlead.runtime.logs import legible


async def print_converted(
    files: list[str],
    namespace: str,
    matches: Callable[[Mapping[str, str] | None], bool],
    ingress_class: str,
    gateway: str,
    gateway_class: str,
    output: Output,
    kubeconfig: Path | None,
    context: str,
) -> int:
    """Print the converted objects, with what is lost on stderr; return the exit code."""
    given = await _read(files, namespace, kubeconfig, context)
    ingresses = [
        ingress
        for ingress in given.ingresses
        if ingress_class in ("", _class_of(ingress)) and matches(ingress.metadata.labels)
    ]
    if not ingresses:
        of_class = f" of class {ingress_class}" if ingress_class else ""
        labelled = any(ingress_class in ("", _class_of(ingress)) for ingress in given.ingresses)
        of_class += " with these labels" if labelled else ""
        where = ", ".join("stdin" if file == "-" else file for file in files) or "the cluster"
        raise NotFound(f"There is no Ingress{of_class} in {where}")
    first = min(ingress.metadata.namespace for ingress in ingresses)
    conversion = convert_ingresses(
        ingresses, given.services, gateway=gateway_key(gateway, first), class_name=gateway_class
    )
    if output is Output.NAME:
        text = "".join(f"{legible(f'{resource.full_name}/{obj.key}')}\n" for resource, obj in conversion.objects)
    else:
        text = encoded(bodies_of(conversion), output) if output is Output.JSON else yaml_of(conversion)
    sys.stdout.write(text)
    for line in lines_of(conversion.remarks):
        sys.stderr.write(f"{legible(line)}\n")
    return OK if conversion.lossless else ATTENTION


async def _read(files: list[str], namespace: str, kubeconfig: Path | None, context: str) -> ConvertInput:
    if files:
        return read_files(files, namespace or "default")
    async with connect(kubeconfig, context=context, name="the member") as cluster:
        # Read a namespace, or with an empty name all of them.
        ingresses, services = await asyncio.gather(
            cluster.list(INGRESSES, namespace), cluster.list(SERVICES, namespace)
        )
        return ConvertInput(ingresses, services)


def gateway_key(text: str, namespace: str) -> ObjectKey:
    """Read --gateway; ``BadConfiguration`` when it is not NS/NAME."""
    given, slash, name = (text or "ingress").rpartition("/")
    if not name or (slash and not given) or "/" in given:
        raise BadConfiguration(f"--gateway: {text!r} is not NAME or NAMESPACE/NAME")
    return ObjectKey(given or namespace, name)


def _class_of(ingress: IngressObject) -> str:
    return ingress.spec.ingress_class_name or ingress.annotation(ANNOTATION_LEGACY_CLASS)


_WIDTH = 118


def bodies_of(conversion: ConvertedIngresses) -> list[JSONObject]:
    """Return the objects as an API server takes them."""
    return [body_of(resource, obj) for resource, obj in conversion.objects]


def yaml_of(conversion: ConvertedIngresses) -> str:
    """Return all documents, with the remarks before the first of them."""
    comments = "".join(f"{line}\n" for line in _comments(conversion.remarks))
    return comments + "".join(f"---\n{_dumped(body)}" for body in bodies_of(conversion))


def lines_of(remarks: Sequence[Remark]) -> list[str]:
    """Return the lines for stderr."""
    return [str(remark) for remark in remarks]


def _comments(remarks: Sequence[Remark]) -> Iterator[str]:
    for remark in remarks:
        yield from textwrap.wrap(
            legible(str(remark)), _WIDTH, initial_indent="# ", subsequent_indent="#   ", break_on_hyphens=False
        )


def _dumped(body: object) -> str:
    return yaml.safe_dump(body, sort_keys=False, width=_WIDTH)


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
        try:
            text = sys.stdin.read() if name == _STDIN else Path(name).read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise BadConfiguration(f"{name} is not UTF-8 text ({error.reason}); save it as UTF-8") from error
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


def _bodies(name: str, text: str) -> Iterator[JSONObject]:
    try:
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadConfiguration(f"{name} is not YAML: {' '.join(str(error).split())}") from error
    for document in documents:
        yield from _objects(name, document)


def _objects(name: str, document: object) -> Iterator[JSONObject]:
    if not isinstance(document, dict):
        raise BadConfiguration(f"{name}: a document is not an object with apiVersion and kind")
    body = cast("JSONObject", document)
    if str(body.get("kind", "")).endswith("List") and isinstance(body.get("items"), list):
        for item in cast("list[Any]", body["items"]):
            yield from _objects(name, item)
    else:
        yield body


def _decoded(name: str, body: JSONObject, kind: type[Any], namespace: str) -> Any:
    metadata: Any = body.get("metadata") or {}
    if not isinstance(metadata, dict):
        raise BadConfiguration(f"{name}: metadata of an object of kind {body['kind']} is not a mapping")
    title = f"{body['kind']} {metadata.get('name', '')}".strip()
    for key, value in (metadata.get("annotations") or {}).items():
        if not isinstance(value, str):
            raise BadConfiguration(f"{name}: {title}: annotation {key} is not a string; put its value in quotes")
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
