"""``fairlead version``: the versions of this program and of the API server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead import __version__
from fairlead.cli.options import Context, Output, OutputOption, Verbose
from fairlead.cli.run import run_async


def version(
    kubeconfig: Annotated[
        Path | None, typer.Option("--kubeconfig", metavar="FILE", help="Print the version of this API server, too.")
    ] = None,
    context: Context = "",
    output: OutputOption = Output.TABLE,
    verbose: Verbose = False,  # noqa: ARG001 - its callback does the work
) -> None:
    """Print the version of this program and, with --kubeconfig, of the API server."""
    versions = {"client": f"v{__version__}"}
    if kubeconfig is not None or context:
        run_async(lambda: _ask(kubeconfig, context, versions))
    from fairlead.cli.output import emit

    names = [f"{name}: {value}" for name, value in versions.items()]
    emit(output, versions, lines=lambda: names, names=lambda: names)


def print_and_exit(asked: bool) -> None:
    """Answer ``fairlead --version`` as ``fairlead version`` does."""
    if asked:
        version()
        raise typer.Exit


async def _ask(kubeconfig: Path | None, context: str, versions: dict[str, str]) -> None:
    from fairlead.cli.hub_reader import connect

    async with connect(kubeconfig, context=context, name="server") as cluster:
        versions["server"] = await cluster.version()
