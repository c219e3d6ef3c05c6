"""Looks up the BackendTLSPolicies that apply to the Services of one route, or that one policy competes with.

In: the caches. Out: what ``policies`` decides of those that have a Service in common: no others play a part. Never
writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fairlead.agent.l7.gateway.plan import BackendPolicy, ParentKey
from fairlead.agent.l7.gateway.policies import (
    PolicyKey,
    PolicyPlan,
    PolicyView,
    config_maps_named,
    plan_policies,
    targets_of,
)
from fairlead.agent.l7.gateway.policy_status import policy_status
from fairlead.agent.l7.gateway.sources import GatewaySources
from fairlead.agent.sources import Sources
from fairlead.api.gateway_policies import BackendTLSPolicy, PolicyStatus


class BackendPolicies:
    """The policies of all Services."""

    def __init__(self, *, sources: Sources, gateway: GatewaySources) -> None:
        self._sources = sources
        self._gateway = gateway

    def of_services(self, services: Iterable[tuple[str, str]]) -> dict[PolicyKey, BackendPolicy]:
        """Return what counts for the ports of these Services."""
        wanted = set(services)
        backends = self._plan(wanted).backends
        return {target: policy for target, policy in backends.items() if target[:2] in wanted}

    def status_of(
        self, policy: BackendTLSPolicy, gateways_of: Callable[[tuple[str, str]], Iterable[ParentKey]], now: str
    ) -> PolicyStatus:
        """Return the status of a policy; ``gateways_of`` has the Gateways that send requests to a Service."""
        services = {target[:2] for target in targets_of(policy)}
        gateways = {gateway for service in services for gateway in gateways_of(service)}
        judgements = self._plan(services, policy).judgements[policy.key]
        return policy_status(judgements, policy, gateways, now=now)

    def _plan(self, services: Iterable[tuple[str, str]], *policies: BackendTLSPolicy) -> PolicyPlan:
        known_policies = {each.key: each for service in services for each in self._gateway.policies_of(*service)}
        known_policies |= {each.key: each for each in policies}
        if not known_policies:
            return PolicyPlan({}, {})
        named = {target[:2] for each in known_policies.values() for target in targets_of(each)}
        known = {key: self._sources.services.get(*key) for key in named}
        bundles = {
            key: self._gateway.bundle(*key) for each in known_policies.values() for key in config_maps_named(each)
        }
        return plan_policies(
            PolicyView(
                policies=tuple(known_policies.values()),
                services={key: service for key, service in known.items() if service is not None},
                ca_bundles={key: bundle for key, bundle in bundles.items() if bundle is not None},
            )
        )
