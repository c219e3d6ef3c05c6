"""Parse KIND/NAME arguments: lb/shared, tcplb/shop.web, class/edge."""

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
#: The short name of each kind on the command line, and the arguments of ``kubectl get`` that list all of them.
_SHORT = {"LoadBalancer": "lb", "TCPLoadBalancer": "tcplb", CLASS: "class"}
_LISTED = {"LoadBalancer": "lb -A", "TCPLoadBalancer": "tcplb -A", CLASS: "lbc"}


class ObjectRef(NamedTuple):
    """One object at the hub; the namespace of a class is empty."""

    kind: str
    namespace: str
    name: str

    @property
    def title(self) -> str:
        """Return kind and name as sentences have them."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"

    @property
    def argument(self) -> str:
        """Return the arguments of a verb that name it."""
        return f"{_SHORT[self.kind]}/{self.name}" + (f" -n {self.namespace}" if self.namespace else "")

    @property
    def not_found(self) -> str:
        """Return the error message for an object that does not exist, with the command that lists the others."""
        return f"There is no {self.title}; kubectl get {_LISTED[self.kind]} lists those that there are"


def parse_object_ref(text: str, namespace: str) -> ObjectRef:
    """Parse KIND/NAME, or KIND/NAMESPACE/NAME as the verbs print it; raise ``BadConfiguration`` with an example."""
    from fairlead.errors import BadConfiguration

    prefix, *rest = text.split("/")
    kind = _KINDS.get(prefix.lower(), "")
    well_formed = len(rest) == 1 or (len(rest) == 2 and kind != CLASS)
    if prefix.lower() in _GROUPS:
        raise BadConfiguration(f"{text!r} is a BackendGroup; name a load balancer that it is on, as in lb/shared")
    if not kind or not well_formed or not all(rest):
        raise BadConfiguration(f"{text!r} is not KIND/NAME; kinds are lb, tcplb and class, as in lb/shared")
    return ObjectRef(kind, "" if kind == CLASS else rest[0] if len(rest) == 2 else namespace, rest[-1])
