"""ReferenceGrant and BackendTLSPolicy of gateway.networking.k8s.io/v1, reduced to the fields that we read.

Source: https://gateway-api.sigs.k8s.io/reference/spec/ (v1.6)
"""

from __future__ import annotations

import msgspec

from fairlead.api.gateway import GATEWAY_GROUP, VERSION, Reference
from fairlead.api.gateway_routes import ParentReference
from fairlead.api.meta import KubeObject, Resource, Wire, WireCondition


class GrantFrom(Wire, frozen=True, gc=False):
    """Who may refer."""

    group: str = ""
    kind: str = ""
    namespace: str = ""


class GrantTo(Wire, frozen=True, gc=False):
    """What may be referred to; without ``name`` all of the kind."""

    group: str = ""
    kind: str = ""
    name: str | None = None


class ReferenceGrantSpec(Wire, frozen=True, gc=False, rename={"from_": "from"}):
    """Each of ``from`` may refer to each of ``to`` in the namespace of the grant."""

    from_: list[GrantFrom] | None = None
    to: list[GrantTo] | None = None


class ReferenceGrant(KubeObject, frozen=True, gc=False):
    """A ReferenceGrant."""

    spec: ReferenceGrantSpec = ReferenceGrantSpec()


class PolicyTarget(Wire, frozen=True, gc=False):
    """A Service in the namespace of the policy; ``sectionName`` is the name of one of its ports."""

    group: str = ""
    kind: str = ""
    name: str = ""
    section_name: str | None = None


class PolicySubjectAltName(Wire, frozen=True, gc=False):
    """``type`` is Hostname or URI, with the field of the same name."""

    type: str = ""
    hostname: str = ""
    uri: str = ""


class BackendValidation(Wire, frozen=True, gc=False):
    """How a backend's certificate is verified."""

    ca_certificate_refs: list[Reference] | None = None
    well_known_ca_certificates: str | None = msgspec.field(default=None, name="wellKnownCACertificates")
    hostname: str = ""
    subject_alt_names: list[PolicySubjectAltName] | None = None


class BackendTLSPolicySpec(Wire, frozen=True, gc=False):
    """Speak TLS to the backends of these Services."""

    target_refs: list[PolicyTarget] | None = None
    validation: BackendValidation = BackendValidation()
    options: dict[str, str] | None = None


class PolicyAncestorStatus(Wire, frozen=True, gc=False):
    """The status of a policy at one Gateway."""

    ancestor_ref: ParentReference = ParentReference()
    controller_name: str = ""
    conditions: list[WireCondition] | None = None


class PolicyStatus(Wire, frozen=True, gc=False):
    """The status of a policy, for 16 Gateways at most; entries of other controllers stay as they are."""

    ancestors: list[PolicyAncestorStatus] | None = None


class BackendTLSPolicy(KubeObject, frozen=True, gc=False):
    """A BackendTLSPolicy."""

    spec: BackendTLSPolicySpec = BackendTLSPolicySpec()
    status: PolicyStatus = PolicyStatus()


#: v1beta1 is what every release of the CRDs serves and stores; v1 has the same fields.
REFERENCE_GRANTS = Resource(GATEWAY_GROUP, "v1beta1", "ReferenceGrant", "referencegrants", True, ReferenceGrant)
BACKEND_TLS_POLICIES = Resource(
    GATEWAY_GROUP, VERSION, "BackendTLSPolicy", "backendtlspolicies", True, BackendTLSPolicy
)
