"""ManagedCertificate, a certificate that the hub orders and renews, and CertificateIssuer, which names an ACME server.

The agent writes the spec, one object for each set of names however many Ingresses and listeners ask for it. The hub
writes the status and a Secret of type kubernetes.io/tls in its namespace. Listeners name the Secret. The status has the
order in progress as data, so that a hub that was killed continues it.
"""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import ACCEPTED, AGE, READY, CelRule, Column, Crd
from fairlead.api.hostname import Host
from fairlead.api.meta import LIST_SET, Conditions, KubeObject, Resource, Wire
from fairlead.api.names import GROUP, LABEL_SUBTENANT, VERSION
from fairlead.api.tcploadbalancer import Origin
from fairlead.model.http import MAX_BUNDLE

CertificateState = Literal["Pending", "Ordering", "Issued", "Failing"]
ChallengeType = Literal["", "http-01", "dns-01"]


class OrderChallenge(Wire, frozen=True, gc=False):
    """How one name of an order is proven.

    content is what is served: the key authorization at the token's path (http-01), or the text of the TXT record
    (dns-01). It is public. offered: the authority was asked to check it.
    """

    host: str
    type: ChallengeType = ""
    url: str = ""
    authorization: str = ""
    token: str = ""
    content: str = ""
    offered: bool = False


class CertificateOrder(Wire, frozen=True, gc=False):
    """An order that has not ended: where it is, and how its names are proven; started is RFC 3339."""

    url: str = ""
    finalize: str = ""
    started: str = ""
    issuer: str = ""
    challenges: tuple[OrderChallenge, ...] = ()


class ManagedCertificateSpec(Wire, frozen=True, gc=False):
    """The names, who issues, and for whom.

    loadBalancers are the HTTPLoadBalancers in its namespace that serve the names. secretName is the Secret that the hub
    writes; it is that of the object when empty. askedBy are the first objects of the member that asked.
    """

    hosts: Annotated[tuple[Host, ...], Meta(min_length=1, max_length=100, extra_json_schema=LIST_SET)]
    issuer: Annotated[str, Meta(min_length=1, max_length=253)] = ""
    secret_name: Annotated[str, Meta(max_length=253)] = ""
    load_balancers: Annotated[
        tuple[Annotated[str, Meta(max_length=253)], ...], Meta(max_length=64, extra_json_schema=LIST_SET)
    ] = ()
    asked_by: Annotated[tuple[Origin, ...], Meta(max_length=16)] = ()


class ManagedCertificateStatus(Wire, frozen=True, gc=False):
    """What became of it.

    digest names the version in the Secret; empty while there is none. Times are RFC 3339. failures counts failed
    orders since the last success; after each the next is tried at nextTry, or as soon as the issuer is not the one any
    more that triedWith names.
    """

    state: CertificateState = "Pending"
    digest: str = ""
    issued_by: str = ""
    issued_for: tuple[str, ...] = ()
    serial: str = ""
    not_before: str = ""
    not_after: str = ""
    renew_at: str = ""
    issued_at: str = ""
    failures: int = 0
    next_try: str = ""
    tried_with: str = ""
    order: CertificateOrder | None = None
    observed_generation: int = 0
    conditions: Conditions = None


class ManagedCertificate(KubeObject, frozen=True, gc=False):
    """A certificate for names of one member, which the hub gets from a CertificateIssuer and renews."""

    spec: ManagedCertificateSpec = msgspec.field(default_factory=lambda: ManagedCertificateSpec(hosts=()))
    status: ManagedCertificateStatus = ManagedCertificateStatus()

    @property
    def secret_name(self) -> str:
        """Return the name of the Secret that holds the certificate and its key."""
        return self.spec.secret_name or self.metadata.name

    @property
    def subtenant(self) -> str:
        """Return the sub-tenant of the first object that asked, empty where that belongs to no namespace."""
        namespace = self.spec.asked_by[0].namespace if self.spec.asked_by else ""
        return namespace and (self.label(LABEL_SUBTENANT) or namespace)


MANAGED_CERTIFICATES = Resource(GROUP, VERSION, "ManagedCertificate", "managedcertificates", True, ManagedCertificate)

MANAGED_CERTIFICATE_CRD = Crd(
    MANAGED_CERTIFICATES,
    short_names=("mcert",),
    # Future times are not columns of type date: kubectl shows such a column as an age, and these as invalid.
    columns=(
        Column("Host", ".spec.hosts[0]", description="the first of its names"),
        Column("Issuer", ".spec.issuer"),
        Column("State", ".status.state"),
        Column("Ends", ".status.notAfter"),
        Column("Renewal", ".status.renewAt"),
        Column("Reason", f"{READY}.reason"),
        Column("Failures", ".status.failures", "integer", priority=1),
        Column("Next try", ".status.nextTry", priority=1),
        AGE,
    ),
)


SecretName = Annotated[str, Meta(max_length=253)]
#: How a name is proven to be ours: HTTP01 at the load balancer itself, DNS01 in a zone of the hub.
Solver = Literal["HTTP01", "DNS01"]


class ExternalAccount(Wire, frozen=True, gc=False):
    """The account at the authority that the ACME account is bound to.

    secretRef names a Secret in the hub's own namespace whose entry hmac is the key, in base64url as the authority gave
    it.
    """

    key_id: Annotated[str, Meta(max_length=512)] = ""
    secret_ref: SecretName = ""


class CertificateIssuerSpec(Wire, frozen=True, gc=False):
    """Which authority, as whom, and for whom.

    accountKeySecret is a Secret in the hub's own namespace with the key of the account (entry tls.key); the hub makes
    it when it is missing. caBundle is PEM and says which authorities the ACME server itself may have; empty: those of
    the system. solvers in order of preference; a wildcard is proven by DNS01 only. domains: names and their sub-names
    that may be asked for, any when empty. tenants: the Tenants that may ask, all of them when empty.
    """

    server: Annotated[str, Meta(min_length=1, max_length=2048, pattern=r"^https?://[^\s]+$")]
    email: Annotated[str, Meta(max_length=320)] = ""
    account_key_secret: SecretName = ""
    external_account: ExternalAccount | None = None
    ca_bundle: Annotated[str, Meta(max_length=MAX_BUNDLE)] = ""
    solvers: Annotated[tuple[Solver, ...], Meta(min_length=1, max_length=2)] = ("HTTP01",)
    domains: Annotated[tuple[Host, ...], Meta(max_length=256, extra_json_schema=LIST_SET)] = ()
    tenants: Annotated[
        tuple[Annotated[str, Meta(min_length=1, max_length=56)], ...], Meta(max_length=256, extra_json_schema=LIST_SET)
    ] = ()

    def account_key_name(self, issuer: str) -> str:
        """Return the name of the Secret with the key of the account of ``issuer``."""
        return self.account_key_secret or f"acme-account-{issuer}"


class CertificateIssuerStatus(Wire, frozen=True, gc=False):
    """Whether there is an account (condition Accepted), and its URL at the authority.

    accountFor is what the account was made for: server, e-mail address and account at the authority.
    """

    account: str = ""
    account_for: str = ""
    observed_generation: int = 0
    conditions: Conditions = None


class CertificateIssuer(KubeObject, frozen=True, gc=False):
    """An ACME certificate authority that issues certificates for names of members."""

    spec: CertificateIssuerSpec = msgspec.field(default_factory=lambda: CertificateIssuerSpec(server=""))
    status: CertificateIssuerStatus = CertificateIssuerStatus()


CERTIFICATE_ISSUERS = Resource(GROUP, VERSION, "CertificateIssuer", "certificateissuers", False, CertificateIssuer)

CERTIFICATE_ISSUER_CRD = Crd(
    CERTIFICATE_ISSUERS,
    short_names=("certissuer",),
    columns=(
        Column("Server", ".spec.server"),
        Column("Accepted", f"{ACCEPTED}.status"),
        Column("Reason", f"{ACCEPTED}.reason"),
        Column("Account", ".status.account", priority=1),
        AGE,
    ),
    rules=(
        CelRule(
            "!has(self.externalAccount) || (has(self.externalAccount.keyId) && has(self.externalAccount.secretRef))",
            "externalAccount needs keyId and secretRef",
            ".externalAccount",
        ),
    ),
)
