"""The rule of a TLSRoute, TCPRoute or UDPRoute.

In: its rules, and what resolves their references. Out: rules that have backends only; the connections of a share
without a backend are closed. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from fairlead.agent.l7.gateway.backend_refs import BackendRefs
from fairlead.api.gateway_routes import ConnectionRule
from fairlead.model.http import BackendRef, Rule


def connection_rules(rules: Iterable[ConnectionRule], refs: BackendRefs) -> tuple[Rule, ...]:
    """Return the rules; the CRDs allow exactly one."""
    return tuple(
        Rule(
            name=rule.name or "",
            backends=tuple(
                BackendRef(refs.resolve(ref), 1 if ref.weight is None else ref.weight)
                for ref in rule.backend_refs or ()
            ),
        )
        for rule in rules
    )
