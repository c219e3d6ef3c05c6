"""CertificateIssuer: an ACME certificate authority that the hub may ask for certificates, and for whom."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from fairlead.api.crd import ACCEPTED, AGE, Column, Crd, Rule
from fairlead.api.hostname import Host
from fairlead.api.meta import LIST_SET, Conditions, KubeObject, Resource, Wire
from fairlead.api.names import GROUP, VERSION
from fairlead.model.http import MAX_BUNDLE

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
        Rule(
            "!has(self.externalAccount) || (has(self.externalAccount.keyId) && has(self.externalAccount.secretRef))",
            "externalAccount needs keyId and secretRef",
            ".externalAccount",
        ),
    ),
)
