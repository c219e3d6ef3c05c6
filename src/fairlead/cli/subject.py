"""Which object is meant by KIND/NAME, as people type it: lb/shared, tcplb/shop.web, class/edge."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, NamedTuple

import typer

from fairlead.cli.options import kubeconfig_help

Kubeconfig = Annotated[Path | None, typer.Option("--kubeconfig", metavar="FILE", help=kubeconfig_help("The hub's API"))]
Namespace = Annotated[str, typer.Option("--namespace", "-n", metavar="NS", help="Namespace of KIND/NAME.")]

CLASS = "LoadBalancerClass"
_KINDS = {
    "lb": "LoadBalancer",
    "loadbalancer": "LoadBalancer",
    "loadbalancers": "LoadBalancer",
    "tcplb": "TCPLoadBalancer",
    "tcploadbalancer": "TCPLoadBalancer",
    "tcploadbalancers": "TCPLoadBalancer",
    "class": CLASS,
    "lbc": CLASS,
    "loadbalancerclass": CLASS,
    "loadbalancerclasses": CLASS,
}
_GROUPS = frozenset({"bg", "backendgroup", "backendgroups"})
#: How each is typed, and how all of them are listed.
_SHORT = {"LoadBalancer": "lb", "TCPLoadBalancer": "tcplb", CLASS: "class"}
_LISTED = {"LoadBalancer": "lb -A", "TCPLoadBalancer": "tcplb -A", CLASS: "lbc"}


class Subject(NamedTuple):
    """One object at the hub; the namespace of a class is empty."""

    kind: str
    namespace: str
    name: str

    @property
    def words(self) -> str:
        """Return how it is called in sentences."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def typed(self) -> str:
        """Return what is typed after a verb to mean it."""
        return f"{_SHORT[self.kind]}/{self.name}" + (f" -n {self.namespace}" if self.namespace else "")

    @property
    def missing(self) -> str:
        """Say that there is no such object, and how to find those that are there."""
        return f"There is no {self.words}; kubectl get {_LISTED[self.kind]} lists those that there are"


def subject_of(text: str, namespace: str) -> Subject:
    """Read KIND/NAME, or KIND/NAMESPACE/NAME as the verbs print it; ``BadConfiguration`` says what can be typed."""
    from fairlead.errors import BadConfiguration

    kind, *rest = text.split("/")
    known = _KINDS.get(kind.lower(), "")
    named = len(rest) == 1 or (len(rest) == 2 and known != CLASS)
    if kind.lower() in _GROUPS:
        raise BadConfiguration(f"{text!r} is a BackendGroup; name a load balancer that it is on, as in lb/shared")
    if not known or not named or not all(rest):
        raise BadConfiguration(f"{text!r} is not KIND/NAME; kinds are lb, tcplb and class, as in lb/shared")
    return Subject(known, "" if known == CLASS else rest[0] if len(rest) == 2 else namespace, rest[-1])
