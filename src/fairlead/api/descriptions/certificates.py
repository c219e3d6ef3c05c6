"""Descriptions of the fields of issuers and certificates; by struct, then by wire name."""

from __future__ import annotations

from collections.abc import Mapping

from fairlead.api.descriptions.shared import OBSERVED

CERTIFICATES: Mapping[str, Mapping[str, str]] = {
    "ExternalAccount": {
        "keyId": "Identifier of the key, issued by the certificate authority.",
        "secretRef": "Secret in the hub's namespace whose entry hmac is the key.",
    },
    "CertificateIssuerSpec": {
        "server": "URL of the directory of the ACME server.",
        "email": "Contact address of the account.",
        "accountKeySecret": "Secret in the hub's namespace with the account key; acme-account-NAME when empty.",
        "caBundle": "PEM certificate authorities that verify the ACME server; those of the system when empty.",
        "solvers": "Challenge types in order of preference: HTTP01, DNS01.",
        "domains": "Allowed domains, including subdomains; any when empty.",
        "tenants": "Names of the Tenants that may use the issuer; all when empty.",
    },
    "CertificateIssuerStatus": {
        **OBSERVED,
        "account": "URL of the account at the certificate authority.",
        "accountFor": "Digest of the settings that the account was created with.",
    },
    "ManagedCertificateSpec": {
        "hosts": "Names in the certificate.",
        "issuer": "Name of the CertificateIssuer.",
        "secretName": "Secret that the hub writes in the same namespace; the name of the object when empty.",
        "loadBalancers": "HTTPLoadBalancers in the same namespace that serve the names.",
        "askedBy": "First objects of the member that requested the certificate.",
    },
    "CertificateOrder": {
        "url": "URL of the order at the certificate authority.",
        "finalize": "URL at which the order is completed.",
        "started": "Time when the order was created.",
        "issuer": "CertificateIssuer and account of the order.",
        "challenges": "Challenges that prove control of the names.",
    },
    "OrderChallenge": {
        "host": "The name.",
        "type": "http-01 or dns-01; empty when no proof is required.",
        "url": "URL of the challenge at the authority.",
        "authorization": "URL of the authorization at the authority.",
        "token": "The token of the challenge.",
        "content": "Content to serve, or the text of the TXT record. Not secret.",
        "offered": "Whether the certificate authority was asked to validate the challenge.",
    },
    "ManagedCertificateStatus": {
        **OBSERVED,
        "state": "Pending, Ordering, Issued or Failing.",
        "digest": "Digest of the certificate in the Secret; empty while there is none.",
        "issuedBy": "CertificateIssuer of the certificate in the Secret.",
        "issuedFor": "Names in the certificate in the Secret.",
        "serial": "Serial number of the certificate, hexadecimal.",
        "notBefore": "Start of the certificate's validity.",
        "notAfter": "Time when the certificate expires.",
        "renewAt": "Time when the hub orders the next certificate.",
        "issuedAt": "Time when the hub received the certificate, by the hub's clock.",
        "failures": "Number of failed orders since the last success.",
        "nextTry": "Time of the next attempt after a failure.",
        "triedWith": "Digest of the server, account and solvers that failed. Different ones are tried immediately.",
        "order": "Order in progress.",
    },
}  # fmt: skip
