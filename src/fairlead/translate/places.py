"""Check that a class shared by members cannot map objects of two members to one name at the load balancer.

A class's parameter such as ``backend: "{member}_{namespace}_{name}"`` names something that is there for others, too.

    class with one tenant        anything: only that member's objects come to it
    class for several, or all    says whose by {member} or {hubNamespace}, and parts its placeholders so that no two
                                 objects come to the same name

In: a class, a Tenant, the names of the parameters (``Capabilities.place_parameters``). Out: a sentence, or "". Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from fairlead.api.loadbalancerclass import LoadBalancerClass
from fairlead.api.tenant import Tenant
from fairlead.model.desired import Owner

PLACEHOLDER = re.compile(r"\{(member|hubNamespace|namespace|name|port)\}")
#: Names of namespaces, Services and Tenants hold none of these.
SEPARATORS = "_:."
_SOME_OWNER = Owner(member="member", namespace="namespace", name="name")
_EXAMPLE = "{member}_{namespace}_{name}"


def not_for_tenant(load_balancer_class: LoadBalancerClass, tenant: Tenant | None) -> str:
    """Return why a Tenant's objects may not use a class, empty when they may."""
    tenants = load_balancer_class.spec.tenants
    if not tenants or (tenant is not None and tenant.metadata.name in tenants):
        return ""
    return (
        f"LoadBalancerClass {load_balancer_class.metadata.name!r} is not for this member; choose another class, or ask "
        "the operator to add the member to the class's spec.tenants"
    )


def class_place_problem(load_balancer_class: LoadBalancerClass, parameters: Iterable[str]) -> str:
    """Return why a class cannot name a place of its own for the Services of each of its members; empty when it can."""
    if len(load_balancer_class.spec.tenants) == 1:
        return ""
    return place_problem(load_balancer_class, None, _SOME_OWNER, parameters)


def place_problem(
    load_balancer_class: LoadBalancerClass, tenant: Tenant | None, owner: Owner, parameters: Iterable[str]
) -> str:
    """Return why a class cannot name a place of its own for what ``owner`` asks for, empty when it can.

    ``parameters``: those that name a place; one that ends in a dot is a prefix.
    """
    spec = load_balancer_class.spec
    if tenant is not None and spec.tenants == [tenant.metadata.name]:
        return ""
    for field, text in sorted(spec.parameters.items()):
        if not any(field == name or (name.endswith(".") and field.startswith(name)) for name in parameters):
            continue
        if problem := _problem(text, owner):
            return (
                f"LoadBalancerClass {load_balancer_class.metadata.name!r} is for several members, and its "
                f"parameters.{field} {text!r} {problem}. Have the operator name one member in the "
                f'class\'s spec.tenants, or create another class with {field}: "{_EXAMPLE}"'
            )
    return ""


def _problem(text: str, owner: Owner) -> str:
    matches = list(PLACEHOLDER.finditer(text))
    names = {match[1] for match in matches}
    # Without a member, the namespace is one at the hub.
    if "hubNamespace" not in names and not {"member" if owner.member else "namespace", "member"} <= names:
        return "does not contain {member} or {hubNamespace}, so members could collide"
    # Only what no name holds can end one; the name of an object at the hub may hold dots.
    separators = SEPARATORS.replace(".", "") if "." in owner.name else SEPARATORS
    for left, right in pairwise(matches):
        between = text[left.end() : right.start()]
        if not any(char in separators for char in between) and not _is_last_port(right, matches, between):
            return f"has nothing but {between!r} between two names, which can be part of a name"
    return ""


def _is_last_port(right: re.Match[str], matches: list[re.Match[str]], between: str) -> bool:
    """Return whether digits at the end stand apart from the name before them: "-80" can be read in one way only."""
    return right is matches[-1] and right[1] == "port" and bool(between) and not between[-1].isdigit()
