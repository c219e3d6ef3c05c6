"""Which object is meant by KIND/NAME, as people type it: lb/shared, tcplb/shop.web, class/edge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from fairlead.cli.options import kubeconfig_help

Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The hub's API"))]
Namespace = Annotated[str, typer.Option("--namespace", "-n", metavar="NS", help="Namespace of KIND/NAME.")]

_KINDS = {
    "lb": "LoadBalancer",
    "loadbalancer": "LoadBalancer",
    "loadbalancers": "LoadBalancer",
    "tcplb": "TCPLoadBalancer",
    "tcploadbalancer": "TCPLoadBalancer",
    "tcploadbalancers": "TCPLoadBalancer",
    "class": "LoadBalancerClass",
    "lbc": "LoadBalancerClass",
    "loadbalancerclass": "LoadBalancerClass",
}


def subject_of(text: str) -> tuple[str, str]:
    """Return (kind, name); ``BadConfiguration`` says what can be typed."""
    from fairlead.errors import BadConfiguration

    kind, slash, name = text.partition("/")
    if not slash or not name or kind.lower() not in _KINDS:
        raise BadConfiguration(f"{text!r} is not KIND/NAME; kinds are lb, tcplb and class, as in lb/shared")
    return _KINDS[kind.lower()], name
