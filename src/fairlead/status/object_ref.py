"""Parse KIND/NAME arguments: svc/web, lb/shared, tcplb/shop.web, class/edge, ingress/shop; and east/shop/web.

The last is what ``fairlead status`` calls a load balancer: the object of a member that it is for, or itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from fairlead.api.names import COMMAND_NAMES, name_problem

#: The kind of a load balancer that is named without one, as [MEMBER/]NAMESPACE/NAME.
ANY = ""
CLASS = "LoadBalancerClass"
SERVICE = "Service"
KINDS = {
    "svc": SERVICE,
    "service": SERVICE,
    "services": SERVICE,
    "lb": "LoadBalancer",
    "loadbalancer": "LoadBalancer",
    "loadbalancers": "LoadBalancer",
    "tcplb": "TCPLoadBalancer",
    "tcploadbalancer": "TCPLoadBalancer",
    "tcploadbalancers": "TCPLoadBalancer",
    "httplb": "HTTPLoadBalancer",
    "httploadbalancer": "HTTPLoadBalancer",
    "httploadbalancers": "HTTPLoadBalancer",
    "gsvc": "GlobalService",
    "globalservice": "GlobalService",
    "globalservices": "GlobalService",
    "hn": "Hostname",
    "hostname": "Hostname",
    "hostnames": "Hostname",
    "class": CLASS,
    "lbc": CLASS,
    "loadbalancerclass": CLASS,
    "loadbalancerclasses": CLASS,
}
#: Kinds of objects of members that share a load balancer with others, and their short names: they are explained, and
#: nothing is done to them.
_SHARING_KINDS = {
    "Ingress": "ing",
    "Gateway": "gtw",
    "ListenerSet": "lset",
    "HTTPRoute": "",
    "GRPCRoute": "",
    "TLSRoute": "",
    "TCPRoute": "",
    "UDPRoute": "",
}
SHARING = {
    alias: kind
    for kind, short in _SHARING_KINDS.items()
    for alias in (short, kind.lower(), f"{kind.lower()}{'es' if kind.endswith('s') else 's'}")
    if alias
}
#: The kinds whose objects are in members.
IN_MEMBERS = frozenset({SERVICE, *_SHARING_KINDS})
_GROUPS = frozenset({"bg", "backendgroup", "backendgroups"})
#: The short name of each kind on the command line, and the arguments of ``kubectl get`` that list all of them.
_SHORT = {ANY: "", SERVICE: "svc", **COMMAND_NAMES, **{kind: kind.lower() for kind in _SHARING_KINDS}}
_LISTED = {
    ANY: "tcplb,httplb,lb,gsvc -A",
    SERVICE: "svc -A",
    "LoadBalancer": "lb -A",
    "TCPLoadBalancer": "tcplb -A",
    "HTTPLoadBalancer": "httplb -A",
    "GlobalService": "gsvc -A",
    "Hostname": "hostnames -A",
    CLASS: "lbc",
    **{kind: f"{kind.lower()} -A" for kind in _SHARING_KINDS},
}


class ObjectRef(NamedTuple):
    """One object at the hub; the namespace of a class is empty. A Service is in a member, which may be named."""

    kind: str
    namespace: str
    name: str
    member: str = ""

    @property
    def title(self) -> str:
        """Return kind and name as sentences have them."""
        return f"{self.kind} {'/'.join(filter(None, (self.member, self.namespace, self.name)))}".strip()

    @property
    def path(self) -> str:
        """Return it as every verb takes it, without further options."""
        return "/".join(filter(None, (_SHORT[self.kind], self.member, self.namespace, self.name)))

    @property
    def argument(self) -> str:
        """Return the arguments of a verb that name it."""
        if self.member or self.kind == ANY:
            return self.path
        return f"{_SHORT[self.kind]}/{self.name}" + (f" -n {self.namespace}" if self.namespace else "")

    @property
    def repair(self) -> str:
        """Return the command that repairs it."""
        return f"fairlead repair {self.argument}"

    @property
    def not_found(self) -> str:
        """Return the error message for an object that does not exist, with the command that lists the others."""
        title = self.title if self.kind else f"Load balancer {self.name}"
        return f"{title} does not exist; to list all: kubectl get {_LISTED[self.kind]}"


def kinds_text(*, sharing: bool = False) -> str:
    """Return the kinds that a verb takes, as its help and its errors list them; ``sharing``: all that are explained."""
    kinds = [short for kind, short in _SHORT.items() if short and (sharing or kind not in _SHARING_KINDS)]
    return f"{', '.join(kinds[:-1])} and {kinds[-1]}"


def parse_object_ref(text: str, namespace: str = "", *, sharing: bool = False) -> ObjectRef:
    """Parse KIND/NAME, KIND/NAMESPACE/NAME or [MEMBER/]NAMESPACE/NAME as the verbs print it.

    An object of a member may have the member before its namespace: svc/MEMBER/NAMESPACE/NAME. ``namespace`` is that
    of a name without one, empty: default. ``sharing``: it may be one that shares its load balancer with others.

    Raises:
        BadConfiguration: with the kinds that there are, and an example.
    """
    from fairlead.errors import BadConfiguration

    prefix, *rest = text.split("/")
    shares = SHARING.get(prefix.lower(), "")
    kind = shares or KINDS.get(prefix.lower(), "")
    max_parts = 3 if kind in IN_MEMBERS else 1 if kind == CLASS else 2
    if prefix.lower() in _GROUPS:
        raise BadConfiguration(f"{text!r} is a BackendGroup; name a load balancer that it is on, as in lb/shared")
    if not kind and prefix and all(rest) and len(rest) <= 2:
        _check_names(text, (prefix, *rest), namespace)
        return ObjectRef(ANY, "", text if rest else f"{namespace or 'default'}/{text}")
    if not kind or not 1 <= len(rest) <= max_parts or not all(rest):
        raise BadConfiguration(
            f"{text!r} is not KIND/NAME; kinds are {kinds_text(sharing=sharing)}, as in svc/web. What fairlead status "
            "lists can be named as shown there, as in east/default/web"
        )
    _check_names(text, rest, namespace)
    member, namespace_text, name = ["", "", *rest][-3:]
    if shares and not sharing:
        raise BadConfiguration(
            f"{text!r} shares its load balancer with others, so this is of httplb/NAME alone; "
            f"fairlead explain {text} names it"
        )
    return ObjectRef(kind, "" if kind == CLASS else namespace_text or namespace or "default", name, member)


def _check_names(text: str, parts: Iterable[str], namespace: str) -> None:
    """Refuse what no object is called: in the path of a request it would lead to another one."""
    from fairlead.errors import BadConfiguration

    for part in parts:
        if problem := name_problem(part):
            raise BadConfiguration(f"{text!r} does not name an object: {problem}")
    if namespace and (problem := name_problem(namespace)):
        raise BadConfiguration(f"--namespace: {problem}")
