"""Completion of objects on the command line: the names of what is at the hub, asked for when TAB is pressed.

In: what was typed so far, and the options before it. Out: KIND/NAME. Never: an error or a wait: a shell that completes
has no place for either, so an API that does not answer at once completes nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import typer

_PATIENCE_S = 2.0
_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "CONNECT", "TRACE")


def complete_object(context: typer.Context, incomplete: str) -> list[str]:
    """Return KIND/NAME of each kind that verbs take; those of another namespace than -n with their namespace."""
    return _starting(incomplete, context, classes=True)


def complete_load_balancer(context: typer.Context, incomplete: str) -> list[str]:
    """Return the same without classes."""
    return _starting(incomplete, context, classes=False)


def complete_http_load_balancer(context: typer.Context, incomplete: str) -> list[str]:
    """Return the HTTPLoadBalancers alone."""
    return [name for name in _starting(incomplete, context, classes=False) if name.startswith("httplb/")]


def complete_method(incomplete: str) -> list[str]:
    """Return the methods of HTTP."""
    return [name for name in _METHODS if name.startswith(incomplete.upper())]


def _starting(incomplete: str, context: typer.Context, *, classes: bool) -> list[str]:
    from fairlead.errors import FairleadError

    options = context.params
    try:
        names = asyncio.run(_names(options.get("kubeconfig"), options.get("context") or "", classes=classes))
    except (FairleadError, OSError, TimeoutError):
        return []
    default = options.get("namespace") or "default"
    short = (name.replace(f"/{default}/", "/", 1) for name in names)
    return sorted({name for name in short if name.startswith(incomplete)})


async def _names(kubeconfig: Any, context: str, *, classes: bool) -> list[str]:
    from fairlead.api.httploadbalancer import HTTP_LOAD_BALANCERS
    from fairlead.api.loadbalancer import LOAD_BALANCERS
    from fairlead.api.loadbalancerclass import LOAD_BALANCER_CLASSES
    from fairlead.api.tcploadbalancer import TCP_LOAD_BALANCERS
    from fairlead.cli.connect import connect

    async with asyncio.timeout(_PATIENCE_S):
        async with connect(Path(kubeconfig) if kubeconfig else None, context=context, name="the hub") as cluster:
            shared, tcp, http, kinds = await asyncio.gather(
                cluster.list(LOAD_BALANCERS),
                cluster.list(TCP_LOAD_BALANCERS),
                cluster.list(HTTP_LOAD_BALANCERS),
                cluster.list(LOAD_BALANCER_CLASSES),
            )
    return [
        *(f"lb/{lb.key}" for lb in shared),
        *(f"tcplb/{lb.key}" for lb in tcp),
        *(f"httplb/{lb.key}" for lb in http),
        *_origins(f"svc/{lb.spec.origin.namespace}/{lb.spec.origin.name}" for lb in tcp if lb.spec.origin.name),
        *(f"class/{each.metadata.name}" for each in kinds if classes),
    ]


def _origins(names: Iterable[str]) -> Iterable[str]:
    return dict.fromkeys(names)
