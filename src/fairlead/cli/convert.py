"""``fairlead convert`` and ``fairlead crds``: Ingresses as objects of Gateway API, and our definitions as YAML."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
import yaml

from fairlead.cli.options import Context, Output, Verbose, kubeconfig_help
from fairlead.cli.run import ATTENTION, OK, run_for_code
from fairlead.cli.selection import matcher

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from fairlead.api.kubernetes import IngressObject
    from fairlead.api.meta import JSONObject, ObjectKey
    from fairlead.cli.convert_input import ConvertInput
    from fairlead.convert.annotations import Remark
    from fairlead.convert.ingresses import ConvertedIngresses


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
    import sys

    from fairlead.cli.output import encoded
    from fairlead.convert.ingresses import convert_ingresses
    from fairlead.errors import NotFound
    from fairlead.runtime.logs import legible

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
    from fairlead.cli.convert_input import read_api, read_files
    from fairlead.cli.hub_reader import connect

    if files:
        return read_files(files, namespace or "default")
    async with connect(kubeconfig, context=context, name="the member") as cluster:
        return await read_api(cluster, namespace)


def _gateway(text: str, namespace: str) -> ObjectKey:
    from fairlead.api.meta import ObjectKey
    from fairlead.errors import BadConfiguration

    given, slash, name = (text or "ingress").rpartition("/")
    if not name or (slash and not given) or "/" in given:
        raise BadConfiguration(f"--gateway: {text!r} is not NAME or NAMESPACE/NAME")
    return ObjectKey(given or namespace, name)


def _class_of(ingress: IngressObject) -> str:
    from fairlead.api.kubernetes import ANNOTATION_LEGACY_CLASS

    return ingress.spec.ingress_class_name or ingress.annotation(ANNOTATION_LEGACY_CLASS)


_WIDTH = 118


def bodies_of(conversion: ConvertedIngresses) -> list[JSONObject]:
    """Return the objects as an API server takes them."""
    from fairlead.convert.accepted import body_of

    return [body_of(resource, obj) for resource, obj in conversion.objects]


def yaml_of(conversion: ConvertedIngresses) -> str:
    """Return all documents, with the remarks before the first of them."""
    comments = "".join(f"{line}\n" for line in _comments(conversion.remarks))
    return comments + "".join(f"---\n{_dumped(body)}" for body in bodies_of(conversion))


def lines_of(remarks: Sequence[Remark]) -> list[str]:
    """Return the lines for stderr."""
    return [str(remark) for remark in remarks]


def _comments(remarks: Sequence[Remark]) -> Iterator[str]:
    from fairlead.runtime.logs import legible

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
    import yaml

    from fairlead.api.clusterapi import labelled
    from fairlead.api.kinds import all_crds

    definitions = labelled(all_crds()) if reader is For.CAPI else all_crds()
    yaml.safe_dump_all(definitions, sys.stdout, sort_keys=False, explicit_start=True, width=120)
