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
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NamedTuple, cast

import msgspec
import typer
import yaml

from fairlead.api.clusterapi import labelled
from fairlead.api.kinds import all_crds
from fairlead.api.kubernetes import ANNOTATION_LEGACY_CLASS, INGRESSES, SERVICES, IngressObject, Service
from fairlead.api.meta import JSONObject, KubeObject, ObjectKey
from fairlead.cli.hub_reader import connect
from fairlead.cli.options import Context, Output, Verbose, kubeconfig_help
from fairlead.cli.output import encoded
from fairlead.cli.run import ATTENTION, OK, run_for_code
from fairlead.cli.selection import matcher
from fairlead.convert.accepted import body_of
from fairlead.convert.annotations import Remark
from fairlead.convert.ingresses import ConvertedIngresses, convert_ingresses
from fairlead.errors import BadConfiguration, NotFound
from fairlead.kube.cluster import Cluster
from fairlead.runtime.logs import legible


def convert(
    files: Annotated[
        list[str] | None,
        typer.Argument(metavar="FILE", help="YAML or JSON with Ingresses; - is stdin. None: ask the cluster."),
    ] = None,
    namespace: Annotated[
        str,
        typer.Option(
            "--namespace", "-n", metavar="NS", help="Read only this namespace; for files: the default namespace."
        ),
    ] = "",
    selector: Annotated[
        str, typer.Option("--selector", "-l", metavar="SELECTOR", help="Only the Ingresses with these labels.")
    ] = "",
    ingress_class: Annotated[
        str, typer.Option("--ingress-class", metavar="NAME", help="Only the Ingresses of this class.")
    ] = "",
    gateway: Annotated[
        str,
        typer.Option(
            "--gateway",
            metavar="NS/NAME",
            help="Name of the Gateway; default: ingress, in the namespace of the Ingresses.",
        ),
    ] = "",
    gateway_class: Annotated[
        str, typer.Option("--gateway-class", metavar="NAME", help="The GatewayClass of the Gateway.")
    ] = "fairlead",
    output: Annotated[
        Output,
        typer.Option(
            "--output", "-o", metavar="FORMAT", help="yaml for kubectl apply; json and name as of other verbs."
        ),
    ] = Output.YAML,
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The member's API"))
    ] = None,
    context: Context = "",
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Print Ingresses, with annotations of ingress-nginx, as objects of Gateway API.

    Nothing is written to a cluster. Settings without an equivalent in Gateway API are listed on stderr and as comments
    before the objects; the exit code is then 4. A path that would behave differently is omitted and listed.
    """
    matches = matcher(selector)
    _gateway(gateway, namespace)  # an invalid name is rejected before anything is read
    run_for_code(
        lambda: _convert(
            files or [], namespace, matches, ingress_class, gateway, gateway_class, output, kubeconfig, context
        )
    )


async def _convert(
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
        ingresses, given.services, gateway=_gateway(gateway, first), class_name=gateway_class
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
        return await read_api(cluster, namespace)


def _gateway(text: str, namespace: str) -> ObjectKey:
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


def _dumped(body: Any) -> str:
    return yaml.safe_dump(body, sort_keys=False, width=_WIDTH)


class For(StrEnum):
    """Readers of the definitions other than the API server."""

    CAPI = "capi"


def crds(
    reader: Annotated[
        For | None,
        typer.Option(
            "--for", help="capi: with the labels by which Cluster API and clusterctl know a provider's kinds."
        ),
    ] = None,
) -> None:
    """Print all CustomResourceDefinitions as YAML: [cyan]fairlead crds | kubectl apply -f -[/cyan]."""
    definitions = labelled(all_crds()) if reader is For.CAPI else all_crds()
    yaml.safe_dump_all(definitions, sys.stdout, sort_keys=False, explicit_start=True, width=120)


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
        documents = [document for document in yaml.load_all(text, Loader=_Loader) if document is not None]
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
