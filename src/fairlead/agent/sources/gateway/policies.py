"""BackendTLSPolicies as TLS settings for the ports of Services, with conditions and a status for each policy.

    several policies with one target        Accepted
    --------------------------------------  -------------------------------------------------------
    the oldest, then the first by name      True, or False with its problem
    all others                              False/Conflicted

A policy for a port precedes one for the whole Service, and both are accepted. If the effective policy cannot be
fulfilled, its Service has no backends: requests are answered 500, and never sent in plain text. If some of
several authorities are missing, the others are used. A status has one entry for each Gateway that sends requests to
the Services, at most 16 with those of other controllers, which are kept. In: policies, Services, certificates of
authorities. Out: effective settings by port, conditions, statuses. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from fairlead.agent.sources.gateway.plan import (
    ACCEPTED,
    CONFIG_MAP,
    RESOLVED_REFS,
    SERVICE,
    BackendPolicy,
    Judgement,
    ParentKey,
    bad,
    good,
    renewed,
)
from fairlead.agent.sources.http import ports_of
from fairlead.api.gateway import (
    GATEWAY_GROUP,
    BackendTLSPolicy,
    BackendValidation,
    ParentReference,
    PolicyAncestorStatus,
    PolicyStatus,
    PolicySubjectAltName,
    PolicyTarget,
    Reference,
)
from fairlead.api.kubernetes import Service
from fairlead.api.meta import ObjectKey
from fairlead.api.names import GATEWAY_CONTROLLER
from fairlead.model.http import MAX_BUNDLE, BackendTls, SubjectAltName

# --- plans -----------------------------------------------------------------------------------------------------------

#: Namespace, name, and the name of a port, empty for the whole Service.
PolicyKey = tuple[str, str, str]
_SYSTEM = "System"


class PolicyView(msgspec.Struct, frozen=True):
    """The input of the BackendTLSPolicies.

    ``services`` and ``ca_bundles`` are by namespace and name; if a ConfigMap exists without a certificate in
    ``ca.crt``, the bundle is empty.
    """

    policies: tuple[BackendTLSPolicy, ...]
    services: Mapping[tuple[str, str], Service] = {}
    ca_bundles: Mapping[tuple[str, str], str] = {}


class PolicyPlan(msgspec.Struct, frozen=True):
    """The effective settings of each target, and conditions Accepted and ResolvedRefs of each policy."""

    backends: Mapping[PolicyKey, BackendPolicy]
    judgements: Mapping[ObjectKey, tuple[Judgement, ...]]


def config_maps_named(policy: BackendTLSPolicy) -> list[tuple[str, str]]:
    """Return namespace and name of the ConfigMaps that a policy names; each once."""
    refs = policy.spec.validation.ca_certificate_refs or ()
    return list(dict.fromkeys((policy.metadata.namespace, ref.name) for ref in refs if _is_config_map(ref)))


def targets_of(policy: BackendTLSPolicy) -> list[PolicyKey]:
    """Return the targets of a policy, each once; only Services are supported."""
    targets = (target for target in policy.spec.target_refs or () if _is_service(target))
    namespace = policy.metadata.namespace
    return list(dict.fromkeys((namespace, target.name, target.section_name or "") for target in targets))


def plan_policies(view: PolicyView) -> PolicyPlan:
    """Return the plan of the policies of ``view``."""
    backends: dict[PolicyKey, BackendPolicy] = {}
    winners: dict[PolicyKey, ObjectKey] = {}
    judgements: dict[ObjectKey, tuple[Judgement, ...]] = {}
    for policy in sorted(view.policies, key=_age):
        verified = _Validation(policy, view.ca_bundles)
        targets = targets_of(policy)
        for target in targets:
            if winners.setdefault(target, policy.key) == policy.key:
                backends[target] = verified.backend_policy()
        lost = [target for target in targets if winners[target] != policy.key]
        accepted = _conflict(targets, lost, winners) or _missing(policy, targets, view.services) or verified.accepted()
        judgements[policy.key] = (accepted, verified.resolved())
    return PolicyPlan(backends, judgements)


class _Validation:
    """The verification of a policy's backends, and its problems."""

    def __init__(self, policy: BackendTLSPolicy, ca_bundles: Mapping[tuple[str, str], str]) -> None:
        self._spec = policy.spec.validation
        self._problems: dict[tuple[str, str], None] = {}
        namespace = policy.metadata.namespace
        bundles = [self._bundle(ref, namespace, ca_bundles) for ref in self._spec.ca_certificate_refs or ()]
        self._bundle_text = "\n".join(bundle.rstrip("\n") for bundle in bundles if bundle)
        if len(self._bundle_text) > MAX_BUNDLE:
            self._problem(
                "InvalidCACertificateRef", f"the certificates are longer than {MAX_BUNDLE} characters together"
            )
            self._bundle_text = ""
        well_known = self._spec.well_known_ca_certificates or ""
        self._system_ca = well_known == _SYSTEM and not self._spec.ca_certificate_refs
        self._unknown_set = well_known if well_known not in {"", _SYSTEM} else ""

    def backend_policy(self) -> BackendPolicy:
        """Return the effective policy for the backends."""
        accepted = self.accepted()
        if accepted.status != "True":
            return BackendPolicy(broken=accepted.message)
        return BackendPolicy(
            BackendTls(
                server_name=self._spec.hostname,
                ca_bundle=self._bundle_text,
                system_ca=self._system_ca,
                subject_alt_names=_names(self._spec),
            )
        )

    def accepted(self) -> Judgement:
        """Return condition Accepted as far as authorities and names decide it."""
        if self._unknown_set:
            return bad(
                ACCEPTED,
                "Invalid",
                f"wellKnownCACertificates {self._unknown_set} is not supported; use {_SYSTEM}, or ConfigMaps",
            )
        unknown = [name.type for name in self._spec.subject_alt_names or () if _name(name) is None]
        if unknown:
            return bad(ACCEPTED, "Invalid", f"subjectAltNames: type {unknown[0]} is not supported; use Hostname or URI")
        if not (self._bundle_text or self._system_ca):
            why = self._message() or "neither caCertificateRefs nor wellKnownCACertificates is there"
            return bad(ACCEPTED, "NoValidCACertificate", why)
        return good(ACCEPTED)

    def resolved(self) -> Judgement:
        """Return condition ResolvedRefs; its reason is that of the first problem."""
        if not self._problems:
            return good(RESOLVED_REFS)
        return bad(RESOLVED_REFS, next(iter(self._problems))[0], self._message())

    def _bundle(self, ref: Reference, namespace: str, ca_bundles: Mapping[tuple[str, str], str]) -> str:
        if not _is_config_map(ref):
            self._problem("InvalidKind", f"{ref.kind} {ref.name} cannot hold authorities: use ConfigMaps")
            return ""
        bundle = ca_bundles.get((namespace, ref.name))
        if bundle is None:
            self._problem("InvalidCACertificateRef", f"there is not a ConfigMap {ref.name} in namespace {namespace}")
        elif not bundle:
            self._problem(
                "InvalidCACertificateRef",
                f"ConfigMap {namespace}/{ref.name} has no certificate in PEM in its entry ca.crt",
            )
        return bundle or ""

    def _problem(self, reason: str, sentence: str) -> None:
        self._problems[reason, sentence] = None

    def _message(self) -> str:
        return "; ".join(sentence for _, sentence in self._problems)


def _age(policy: BackendTLSPolicy) -> tuple[str, ObjectKey]:
    return (policy.metadata.creation_timestamp or "~", policy.key)


def _conflict(
    targets: Iterable[PolicyKey], lost: list[PolicyKey], winners: Mapping[PolicyKey, ObjectKey]
) -> Judgement | None:
    """Return the refusal of a policy whose targets all belong to other policies."""
    if not lost or len(lost) != len(list(targets)):
        return None
    _, name, port = lost[0]
    target = f"port {port} of Service {name}" if port else f"Service {name}"
    return bad(ACCEPTED, "Conflicted", f"BackendTLSPolicy {winners[lost[0]]} counts for {target}: it is older")


def _missing(
    policy: BackendTLSPolicy, targets: Iterable[PolicyKey], services: Mapping[tuple[str, str], Service]
) -> Judgement | None:
    """Return the refusal of a policy without an existing target."""
    problems: list[str] = [
        f"{target.kind} {target.name} cannot be a target: use Services"
        for target in policy.spec.target_refs or ()
        if not _is_service(target)
    ]
    any_there = False
    for namespace, name, port in targets:
        service = services.get((namespace, name))
        if service is None:
            problems.append(f"there is no Service {name} in namespace {namespace}")
        elif port and all(service_port.name != port for service_port in service.spec.ports or ()):
            problems.append(f"Service {namespace}/{name} has no port of name {port}{ports_of(service)}")
        else:
            any_there = True
    return None if any_there else bad(ACCEPTED, "TargetNotFound", "; ".join(problems) or "targetRefs is empty")


def _names(validation: BackendValidation) -> tuple[SubjectAltName, ...]:
    names = map(_name, validation.subject_alt_names or ())
    return tuple(name for name in names if name is not None)


def _name(name: PolicySubjectAltName) -> SubjectAltName | None:
    match name.type:
        case "Hostname":
            return SubjectAltName("Hostname", name.hostname)
        case "URI":
            return SubjectAltName("URI", name.uri)
        case _:
            return None


def _is_service(target: PolicyTarget) -> bool:
    return (target.group, target.kind) == SERVICE


def _is_config_map(ref: Reference) -> bool:
    return (ref.group or "", ref.kind) == CONFIG_MAP


# --- status ----------------------------------------------------------------------------------------------------------

#: The limit of the API server.
MAX_ANCESTORS = 16


def policy_status(
    judgements: Iterable[Judgement], policy: BackendTLSPolicy, gateways: Iterable[ParentKey], *, now: str
) -> PolicyStatus:
    """Return the status of ``policy`` at ``now``, RFC 3339; with too many ``gateways``, present entries stay."""
    judgements = tuple(judgements)
    wanted = dict.fromkeys(
        ParentReference(GATEWAY_GROUP, gateway.kind, gateway.namespace, gateway.name) for gateway in sorted(gateways)
    )
    entries: list[PolicyAncestorStatus] = []
    for entry in policy.status.ancestors or ():
        if entry.controller_name != GATEWAY_CONTROLLER:
            entries.append(entry)
        elif entry.ancestor_ref in wanted:
            del wanted[entry.ancestor_ref]
            entries.append(renewed(entry, judgements, policy, now))
    entries += [
        renewed(PolicyAncestorStatus(reference, GATEWAY_CONTROLLER), judgements, policy, now) for reference in wanted
    ]
    if not entries and not policy.status.ancestors:
        return policy.status
    return PolicyStatus(entries[:MAX_ANCESTORS])
