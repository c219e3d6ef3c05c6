"""``fairlead crds``: the definitions that an administrator installs where Fairlead may not install them."""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer


class For(StrEnum):
    """Readers of the definitions beside the API server."""

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

    from fairlead.api.capi_contract import labelled
    from fairlead.api.kinds import all_crds

    definitions = labelled(all_crds()) if reader is For.CAPI else all_crds()
    yaml.safe_dump_all(definitions, sys.stdout, sort_keys=False, explicit_start=True, width=120)
